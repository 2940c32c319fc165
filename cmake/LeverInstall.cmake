# Installation: header, both libraries, command, pkg-config file, CMake package (lever::lever, lever::static).
#
# The static library does not contain ggml and libllama. Where these are archives, they are installed beside it, in a
# folder of their own (lib/lever), and both packages name them. Everything is found relative to the installed files, so
# the prefix may be chosen, or moved, after building.
include(CMakePackageConfigHelpers)

set(lever_cxx_library "")
foreach(library ${CMAKE_CXX_IMPLICIT_LINK_LIBRARIES})
    if(library MATCHES "^(stdc\\+\\+|c\\+\\+|c\\+\\+_shared)$")
        set(lever_cxx_library ${library})
    endif()
endforeach()

# What a program that links liblever.a links too: for pkg-config, and as a CMake list.
set(lever_private_flags "")
set(lever_private_libraries "")
foreach(archive ${LEVER_LLAMA_ARCHIVES})
    if(archive MATCHES "\\.a$")
        install(FILES ${archive} DESTINATION ${CMAKE_INSTALL_LIBDIR}/lever)
        get_filename_component(name ${archive} NAME)
        string(APPEND lever_private_flags " \${libdir}/lever/${name}")
        list(APPEND lever_private_libraries "\${lever_libdir}/lever/${name}")
    else()
        string(APPEND lever_private_flags " ${archive}")
        list(APPEND lever_private_libraries ${archive})
    endif()
endforeach()
foreach(library ${lever_cxx_library} m pthread ${CMAKE_DL_LIBS})
    string(APPEND lever_private_flags " -l${library}")
    list(APPEND lever_private_libraries ${library})
endforeach()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/lever)
file(RELATIVE_PATH lever_pc_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" lever_pc_prefix ${lever_pc_prefix})
configure_file(cmake/lever.pc.in lever.pc @ONLY)
configure_package_config_file(cmake/leverConfig.cmake.in leverConfig.cmake INSTALL_DESTINATION ${package_dir}
    PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file(leverConfigVersion.cmake COMPATIBILITY SameMinorVersion)

install(TARGETS lever_static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS lever_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET lever_command)
    install(TARGETS lever_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(FILES include/lever.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/lever.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/leverConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/leverConfigVersion.cmake
        DESTINATION ${package_dir})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
