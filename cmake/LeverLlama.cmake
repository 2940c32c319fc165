# lever_llama: ggml and libllama, with their headers. Who links it sets LINKER_LANGUAGE CXX, for the C++ library.
#
# LEVER_LLAMA says where they come from:
#   a folder   an installation (include/llama.h, lib/libllama.a), or a source tree of llama.cpp, which is built
#   BUNDLED    the pinned source, fetched, checked and built once into a cache (tools/get-llama.sh)
#   SYSTEM     whatever the system has installed
#   AUTO       BUNDLED, and SYSTEM where that is not to be had

function(lever_llama_build result)
    set(command ${CMAKE_CURRENT_SOURCE_DIR}/tools/get-llama.sh --cc ${CMAKE_C_COMPILER} --cxx ${CMAKE_CXX_COMPILER} ${ARGN})
    if(NOT LEVER_NATIVE)
        list(APPEND command --portable)
    endif()
    if(LEVER_SANITIZE STREQUAL "thread") # the others do not need an instrumented ggml
        list(APPEND command --sanitize thread)
    endif()
    execute_process(COMMAND ${command} OUTPUT_VARIABLE prefix RESULT_VARIABLE status OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(NOT status EQUAL 0)
        set(prefix "")
    endif()
    set(${result} "${prefix}" PARENT_SCOPE)
endfunction()

set(llama_prefix "")
if(LEVER_LLAMA STREQUAL "AUTO" OR LEVER_LLAMA STREQUAL "BUNDLED")
    lever_llama_build(llama_prefix)
    if(NOT llama_prefix AND LEVER_LLAMA STREQUAL "BUNDLED")
        message(FATAL_ERROR "ggml and libllama could not be built; see above. "
                            "-DLEVER_LLAMA=<folder> takes a source tree or an installation instead.")
    endif()
elseif(NOT LEVER_LLAMA STREQUAL "SYSTEM")
    get_filename_component(llama_prefix "${LEVER_LLAMA}" ABSOLUTE)
    if(EXISTS ${llama_prefix}/ggml/CMakeLists.txt)
        lever_llama_build(llama_prefix --source ${llama_prefix})
    endif()
    if(NOT EXISTS "${llama_prefix}/include/llama.h")
        message(FATAL_ERROR "LEVER_LLAMA=${LEVER_LLAMA}: neither an installation of libllama (include/llama.h is not "
                            "there) nor a source tree that can be built.")
    endif()
endif()

if(llama_prefix)
    set(llama_search PATHS ${llama_prefix} NO_DEFAULT_PATH)
else()
    set(llama_search)
endif()

# Not cached: another LEVER_LLAMA in the same build folder must find its own.
add_library(lever_llama INTERFACE)
unset(LEVER_LLAMA_INCLUDE CACHE)
find_path(LEVER_LLAMA_INCLUDE llama.h ${llama_search} PATH_SUFFIXES include)
set(LEVER_LLAMA_ARCHIVES)
foreach(part llama ggml ggml-cpu ggml-base) # in the order of linking
    unset(LEVER_LIB_${part} CACHE)
    find_library(LEVER_LIB_${part} ${part} ${llama_search} PATH_SUFFIXES lib lib64)
    if(NOT LEVER_LIB_${part} OR NOT LEVER_LLAMA_INCLUDE)
        message(FATAL_ERROR "ggml and libllama are missing (looked for llama.h and lib${part}). Give an installation or a "
                            "source tree with -DLEVER_LLAMA=<folder>, or let -DLEVER_LLAMA=BUNDLED fetch the source.")
    endif()
    add_library(lever_lib_${part} UNKNOWN IMPORTED)
    set_target_properties(lever_lib_${part} PROPERTIES IMPORTED_LOCATION ${LEVER_LIB_${part}})
    target_link_libraries(lever_llama INTERFACE lever_lib_${part})
    list(APPEND LEVER_LLAMA_ARCHIVES ${LEVER_LIB_${part}})
endforeach()
# An archive built elsewhere may want OpenMP's run-time library.
if(LEVER_LIB_ggml-cpu MATCHES "\\.a$")
    file(STRINGS ${LEVER_LIB_ggml-cpu} wants_openmp REGEX "(GOMP|__kmpc)_" LIMIT_COUNT 1)
    if(wants_openmp)
        find_package(OpenMP REQUIRED COMPONENTS C)
        target_link_libraries(lever_llama INTERFACE ${OpenMP_C_LIBRARIES})
        list(APPEND LEVER_LLAMA_ARCHIVES ${OpenMP_C_LIBRARIES})
    endif()
endif()
target_include_directories(lever_llama SYSTEM INTERFACE ${LEVER_LLAMA_INCLUDE})
message(STATUS "ggml and libllama: ${LEVER_LIB_llama}")
