# Writes INPUT as the bytes of a C array, separated by commas, to OUTPUT:  cmake -DINPUT=a -DOUTPUT=b -P embed.cmake
file(READ ${INPUT} bytes HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
file(WRITE ${OUTPUT} "${bytes}\n")
