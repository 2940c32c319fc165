# lever_flags: the flags of every C file of lever's own, and LEVER_X86.

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64|i[3-6]86)$")
    set(LEVER_X86 ON)
else()
    set(LEVER_X86 OFF)
endif()

# No -ffast-math and no contraction: the bits of a result must not depend on the compiler's taste (docs/ARITHMETIC.md).
add_library(lever_flags INTERFACE)
set(CMAKE_C_STANDARD 11)
target_compile_definitions(lever_flags INTERFACE _GNU_SOURCE _FILE_OFFSET_BITS=64)
target_compile_options(lever_flags INTERFACE
    -ffp-contract=off
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wundef
    -Wdouble-promotion)
set(CMAKE_C_EXTENSIONS OFF)
if(LEVER_WERROR)
    target_compile_options(lever_flags INTERFACE -Werror)
endif()

if(LEVER_SANITIZE STREQUAL "address")
    set(lever_sanitizers -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
elseif(LEVER_SANITIZE STREQUAL "thread")
    set(lever_sanitizers -fsanitize=thread -fno-omit-frame-pointer)
elseif(LEVER_SANITIZE)
    message(FATAL_ERROR "LEVER_SANITIZE is '${LEVER_SANITIZE}'; it may be address, thread or empty.")
endif()
if(LEVER_SANITIZE)
    target_compile_options(lever_flags INTERFACE ${lever_sanitizers})
    target_link_options(lever_flags INTERFACE ${lever_sanitizers})
endif()
