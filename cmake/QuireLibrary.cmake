# libquire.so, the target quire::quire: the public API of include/quire/ over the same objects as the program.

# What it is compatible with: the soname and the package's name have it.
set(api_version ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})

# Sanitizers' runtimes belong to programs.
if(QUIRE_SANITIZE)
  return()
endif()

# The folders that hold public functions, which nothing here calls, whole; of the others what these need.
add_library(quire_shared SHARED)
foreach(folder base request hub tokenizer chat engine)
  target_sources(quire_shared PRIVATE $<TARGET_OBJECTS:quire_${folder}>)
endforeach()
add_library(quire::quire ALIAS quire_shared)
target_compile_features(quire_shared INTERFACE cxx_std_20)
target_include_directories(quire_shared INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                           $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(quire_shared PRIVATE quire_engine INTERFACE nlohmann_json::nlohmann_json)
set(exports ${CMAKE_CURRENT_LIST_DIR}/libquire.map)
target_link_options(quire_shared PRIVATE -Wl,--version-script=${exports} -Wl,--no-undefined)
set_target_properties(quire_shared PROPERTIES
  OUTPUT_NAME quire EXPORT_NAME quire LINKER_LANGUAGE CXX VERSION ${PROJECT_VERSION} SOVERSION ${api_version}
  LINK_DEPENDS ${exports}
  # Beside libquire_cuda.so.
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/src)
if(NOT QUIRE_INSTALL)
  return()
endif()

include(CMakePackageConfigHelpers)
set(config ${CMAKE_INSTALL_LIBDIR}/cmake/quire)
set(pkgconfig ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(TARGETS quire_shared EXPORT quire
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT dev)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/quire DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev)
install(EXPORT quire NAMESPACE quire:: FILE quireTargets.cmake DESTINATION ${config} COMPONENT dev)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/quireConfig.cmake.in ${PROJECT_BINARY_DIR}/quireConfig.cmake
                              INSTALL_DESTINATION ${config})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/quireConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/quireConfig.cmake ${PROJECT_BINARY_DIR}/quireConfigVersion.cmake
        DESTINATION ${config} COMPONENT dev)
# quire.pc names its folders from its own, so that an installation can be moved; an absolute one stays.
file(RELATIVE_PATH prefix_from_pc ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
foreach(folder LIBDIR INCLUDEDIR)
  set(pc_${folder} "\${prefix}/${CMAKE_INSTALL_${folder}}")
  if(IS_ABSOLUTE "${CMAKE_INSTALL_${folder}}")
    set(pc_${folder} "${CMAKE_INSTALL_FULL_${folder}}")
  endif()
endforeach()
configure_file(${CMAKE_CURRENT_LIST_DIR}/quire.pc.in ${PROJECT_BINARY_DIR}/quire.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/quire.pc DESTINATION ${pkgconfig} COMPONENT dev)
