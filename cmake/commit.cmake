# Writes OUTPUT, a header with the commit of SOURCE, when it is not what stands there already:
#     cmake -DSOURCE=folder -DOUTPUT=commit.h -P commit.cmake
# Without git, or outside of a repository, the commit is unknown, and said to have changes.
set(hash unknown)
set(dirty true)
find_program(git git)
if(git)
    execute_process(COMMAND ${git} -C ${SOURCE} rev-parse HEAD
                    OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
    execute_process(COMMAND ${git} -C ${SOURCE} status --porcelain --untracked-files=no
                    OUTPUT_VARIABLE changes ERROR_QUIET)
    if(NOT failed)
        set(hash ${found})
        if(changes STREQUAL "")
            set(dirty false)
        endif()
    endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT
"/* The commit that was built; written by cmake/commit.cmake. */
#define LEVER_COMMIT \"@hash@\"
#define LEVER_COMMIT_DIRTY @dirty@
")
