# What `cmake --install` puts where, and the Debian package that CPack makes of it (cpack -G DEB).

set(QUIRE_MODELS_DIR ${CMAKE_INSTALL_DATADIR}/quire/models)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/models/lexicon DESTINATION ${QUIRE_MODELS_DIR})
install(FILES ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/docs/architecture.md
              ${PROJECT_SOURCE_DIR}/docs/adding-a-model.md ${PROJECT_SOURCE_DIR}/docs/performance.md
              ${PROJECT_SOURCE_DIR}/docs/operations.md
        DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES ${PROJECT_SOURCE_DIR}/deploy/quire.service ${PROJECT_SOURCE_DIR}/deploy/quire-gpu.conf
              ${PROJECT_SOURCE_DIR}/deploy/kubernetes.yaml
              ${PROJECT_SOURCE_DIR}/deploy/prometheus.yml ${PROJECT_SOURCE_DIR}/deploy/quire.rules.yml
              ${PROJECT_SOURCE_DIR}/deploy/grafana-dashboard.json
        DESTINATION ${CMAKE_INSTALL_DATADIR}/quire/deploy)
install(FILES ${PROJECT_SOURCE_DIR}/packaging/copyright DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES ${PROJECT_SOURCE_DIR}/packaging/quire.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)

# The binary knows its own commands and options, so it writes the completions.
if(TARGET quire)
  set(completions ${PROJECT_BINARY_DIR}/completions)
  file(MAKE_DIRECTORY ${completions})
  foreach(shell bash zsh fish)
    add_custom_command(
      OUTPUT ${completions}/quire.${shell}
      COMMAND quire completion ${shell} > ${completions}/quire.${shell}
      DEPENDS quire VERBATIM)
    list(APPEND completion_files ${completions}/quire.${shell})
  endforeach()
  add_custom_target(quire_completions ALL DEPENDS ${completion_files})
  install(FILES ${completions}/quire.bash RENAME quire
          DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${completions}/quire.zsh RENAME _quire
          DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
  install(FILES ${completions}/quire.fish
          DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME quire)
set(CPACK_PACKAGE_VENDOR "The quire authors")
set(CPACK_PACKAGE_CONTACT "The quire authors <quire@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "serves large language models from one binary")
set(where "any x86-64 processor")
if(QUIRE_HAS_CUDA)
  set(where "NVIDIA GPUs (with the package quire-cuda) or ${where}")
endif()
set(CPACK_PACKAGE_DESCRIPTION
    "quire runs Qwen, Llama and Mistral checkpoints as Hugging Face publishes them, as a server, in batches or in
a chat, on ${where}, with no Python
at run time. It comes with a small model that defines English words.")
# Not the last, for which CPack would take the summary alone.
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "${CPACK_PACKAGE_DESCRIPTION}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
# The libraries' packages and versions are read off the binary.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
if(QUIRE_HAS_CUDA)
  # Two packages: quire, which runs anywhere, and quire-cuda beside it, which is libquire_cuda.so. CUDA's
  # own libraries come from NVIDIA's repository: where they were not installed as packages, Debian's tools
  # know neither their packages nor, unless told, their folder.
  set(CPACK_DEB_COMPONENT_INSTALL ON)
  set(CPACK_COMPONENTS_ALL Unspecified cuda)
  set(CPACK_DEBIAN_UNSPECIFIED_PACKAGE_NAME quire)
  set(CPACK_DEBIAN_UNSPECIFIED_DESCRIPTION "${CPACK_PACKAGE_DESCRIPTION}")
  set(CPACK_DEBIAN_UNSPECIFIED_PACKAGE_SUGGESTS quire-cuda)
  set(CPACK_DEBIAN_CUDA_PACKAGE_NAME quire-cuda)
  set(CPACK_COMPONENT_CUDA_DESCRIPTION
      "quire's CUDA backend: the library that quire loads to run models on NVIDIA GPUs. It takes a driver of release
580 or later.")
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CUDAToolkit_LIBRARY_DIR})
  set(release ${CUDAToolkit_VERSION_MAJOR}-${CUDAToolkit_VERSION_MINOR})
  set(CPACK_DEBIAN_CUDA_PACKAGE_DEPENDS
      "quire (= ${PROJECT_VERSION}), libcublas-${release} | libcublas${CUDAToolkit_VERSION_MAJOR}")
  set(CPACK_DEBIAN_CUDA_PACKAGE_RECOMMENDS "libnccl2")
endif()
include(CPack)
