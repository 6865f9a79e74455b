# The version is read from tabla.pc, which is always installed.
get_filename_component(_tabla_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
file(GLOB _tabla_pc
  "${_tabla_prefix}/lib*/pkgconfig/tabla.pc" "${_tabla_prefix}/lib/*/pkgconfig/tabla.pc")
list(GET _tabla_pc 0 _tabla_pc)
file(STRINGS "${_tabla_pc}" PACKAGE_VERSION REGEX "^Version: ")
string(REPLACE "Version: " "" PACKAGE_VERSION "${PACKAGE_VERSION}")

# TABLA_ABI_VERSION marks incompatible changes, so every newer version is accepted.
if(PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE FALSE)
else()
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
  if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
    set(PACKAGE_VERSION_EXACT TRUE)
  endif()
endif()
unset(_tabla_prefix)
unset(_tabla_pc)
