# find_package(tabla) defines tabla::tabla, the shared library, and tabla::static, the static one.
get_filename_component(_tabla_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
include(CMakeFindDependencyMacro)
find_dependency(Threads)

set(_tabla_name libtabla.so)
if(APPLE)
  set(_tabla_name libtabla.dylib)
endif()

# Debian uses a directory for each architecture, other systems lib64.
foreach(_tabla_folder lib "lib/${CMAKE_LIBRARY_ARCHITECTURE}" lib64)
  set(_tabla_lib "${_tabla_prefix}/${_tabla_folder}")
  if(EXISTS "${_tabla_lib}/${_tabla_name}")
    break()
  endif()
endforeach()

if(NOT TARGET tabla::tabla)
  add_library(tabla::tabla SHARED IMPORTED)
  set_target_properties(tabla::tabla PROPERTIES
    IMPORTED_LOCATION "${_tabla_lib}/${_tabla_name}"
    INTERFACE_INCLUDE_DIRECTORIES "${_tabla_prefix}/include")

  add_library(tabla::static STATIC IMPORTED)
  set_target_properties(tabla::static PROPERTIES
    IMPORTED_LOCATION "${_tabla_lib}/libtabla.a"
    INTERFACE_INCLUDE_DIRECTORIES "${_tabla_prefix}/include"
    INTERFACE_LINK_LIBRARIES "Threads::Threads;${CMAKE_DL_LIBS};m")
endif()
unset(_tabla_lib)
unset(_tabla_name)
unset(_tabla_prefix)
