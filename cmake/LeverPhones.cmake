# lever_phones_source: a C file with the texts of profiles/phones/*.phone, so that their names work wherever the library
# is. Written as numbers, since a string of C may be too short for them.
file(GLOB phone_profiles CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/profiles/phones/*.phone)
list(SORT phone_profiles)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${phone_profiles})

set(phone_texts "")
set(phone_table "")
foreach(path ${phone_profiles})
    get_filename_component(name ${path} NAME_WE)
    file(READ ${path} hex HEX)
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
    string(APPEND phone_texts "static const char text_${name}[] = {${bytes}0};\n")
    string(APPEND phone_table "    {\"${name}\", text_${name}},\n")
endforeach()

set(lever_phones_source ${CMAKE_CURRENT_BINARY_DIR}/phones.c)
file(CONFIGURE OUTPUT ${lever_phones_source} @ONLY CONTENT [[
/* Written by cmake/LeverPhones.cmake from profiles/phones. */
#include "phone/phone_profile.h"

@phone_texts@
const lv_phone_text lv_phone_texts[] = {
@phone_table@};
const size_t lv_phone_texts_count = sizeof(lv_phone_texts) / sizeof(lv_phone_texts[0]);
]])
