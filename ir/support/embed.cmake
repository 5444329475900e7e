# SPDX-License-Identifier: Apache-2.0
# cmake -DINPUT=FILE -DOUTPUT=FILE.c -DNAME=symbol -P embed.cmake: a text as a zero-terminated array of bytes.
file(READ ${INPUT} bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
string(REGEX REPLACE "(................................................................................)" "\\1\n" bytes "${bytes}")
file(WRITE ${OUTPUT} "extern const unsigned char ${NAME}[];\nconst unsigned char ${NAME}[] = {\n${bytes}0};\n")
