# SPDX-License-Identifier: Apache-2.0
# cmake -DCMARK=.. -DFRAME=manual.html.in -DINPUT=PAGE.md -DOUTPUT=PAGE.html -DUP=[../] -P manual.cmake
# A page of the manual as HTML. cmark-gfm makes neither the anchors of headings, as GitHub has them, nor links between
# pages; links that leave the manual become their text. UP: from the page to the folder of the manual.
execute_process(COMMAND ${CMARK} -e table --to html ${INPUT} OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)

set(body "")
while(text MATCHES "<h([1-6])>([^\n]*)</h[1-6]>\n")
  set(heading "${CMAKE_MATCH_0}")
  set(level ${CMAKE_MATCH_1})
  set(title "${CMAKE_MATCH_2}")
  string(REGEX REPLACE "<[^>]*>|&[a-z]+;|[^A-Za-z0-9_ -]" "" id "${title}")
  string(REPLACE " " "-" id "${id}")
  string(TOLOWER "${id}" id)
  string(FIND "${text}" "${heading}" at)
  string(LENGTH "${heading}" length)
  string(SUBSTRING "${text}" 0 ${at} before)
  math(EXPR at "${at} + ${length}")
  string(SUBSTRING "${text}" ${at} -1 text)
  string(APPEND body "${before}<h${level} id=\"${id}\">${title}</h${level}>\n")
  if(NOT DEFINED name)
    string(REGEX REPLACE "<[^>]*>" "" name "${title}")
  endif()
endwhile()
string(APPEND body "${text}")

string(REGEX REPLACE "<a href=\"${UP}\\.\\./[^\"]*\">([^<]*(<code>[^<]*</code>)?[^<]*)</a>" "\\1" body "${body}")
string(REGEX REPLACE "<a href=\"([^\":]*)README\\.md" "<a href=\"\\1index.md" body "${body}")
string(REGEX REPLACE "<a href=\"([^\":#]*)\\.md([\"#])" "<a href=\"\\1.html\\2" body "${body}")
configure_file(${FRAME} ${OUTPUT} @ONLY)
