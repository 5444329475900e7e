# SPDX-License-Identifier: Apache-2.0
# cpack runs this between installing and packing: what Debian wants in each package beside the installed files.
foreach(pair command:${CPACK_DEBIAN_COMMAND_PACKAGE_NAME} mpi:${CPACK_DEBIAN_MPI_PACKAGE_NAME}
    development:${CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME} documentation:${CPACK_DEBIAN_DOCUMENTATION_PACKAGE_NAME})
  string(REGEX REPLACE ":.*" "" component ${pair})
  string(REGEX REPLACE ".*:" "" package ${pair})
  set(root ${CPACK_TEMPORARY_DIRECTORY}/${component}/usr)
  if(NOT EXISTS ${root})
    continue()
  endif()
  file(REMOVE ${root}/share/doc/tfmc/LICENSE) # it is in common-licenses
  set(doc ${root}/share/doc/${package})
  file(WRITE ${doc}/copyright "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: tfmc

Files: *
Copyright: the authors of tfmc
License: Apache-2.0
 On Debian systems the text of the license is in /usr/share/common-licenses/Apache-2.0.
")
  file(WRITE ${doc}/changelog "tfmc (${CPACK_DEBIAN_PACKAGE_VERSION}) unstable; urgency=medium

  * Changes of this version are in tfmc-doc.

 -- ${CPACK_DEBIAN_PACKAGE_MAINTAINER}  Thu, 01 Jan 1970 00:00:00 +0000
")
  file(GLOB texts ${doc}/changelog ${root}/share/man/man1/*.1)
  foreach(text ${texts})
    execute_process(COMMAND gzip -9nf ${text} COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
endforeach()
