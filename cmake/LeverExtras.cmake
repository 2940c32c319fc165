# lever_curl and lever_edit: libraries that the command uses where they are there. Each target is empty without them,
# else it carries the definition LEVER_HAVE_CURL or LEVER_HAVE_EDIT.

add_library(lever_curl INTERFACE)
if(NOT LEVER_WITH_CURL STREQUAL "OFF")
    find_package(CURL)
    if(CURL_FOUND)
        target_include_directories(lever_curl SYSTEM INTERFACE ${CURL_INCLUDE_DIRS}) # loaded when it is needed
        target_compile_definitions(lever_curl INTERFACE LEVER_HAVE_CURL=1)
    elseif(NOT LEVER_WITH_CURL STREQUAL "AUTO")
        message(FATAL_ERROR "LEVER_WITH_CURL=${LEVER_WITH_CURL}, and libcurl was not found (libcurl4-openssl-dev).")
    endif()
endif()

add_library(lever_edit INTERFACE)
if(NOT LEVER_WITH_EDIT STREQUAL "OFF")
    find_path(LEVER_EDIT_INCLUDE histedit.h)
    find_library(LEVER_EDIT_LIBRARY edit)
    if(LEVER_EDIT_INCLUDE AND LEVER_EDIT_LIBRARY)
        target_include_directories(lever_edit SYSTEM INTERFACE ${LEVER_EDIT_INCLUDE})
        target_link_libraries(lever_edit INTERFACE ${LEVER_EDIT_LIBRARY})
        target_compile_definitions(lever_edit INTERFACE LEVER_HAVE_EDIT=1)
    elseif(NOT LEVER_WITH_EDIT STREQUAL "AUTO")
        message(FATAL_ERROR "LEVER_WITH_EDIT=${LEVER_WITH_EDIT}, and libedit was not found (libedit-dev).")
    endif()
endif()
