# What `cmake --install` puts where, besides the library (cmake/QuireLibrary.cmake).

set(QUIRE_MODELS_DIR ${CMAKE_INSTALL_DATADIR}/quire/models)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/models/lexicon ${PROJECT_SOURCE_DIR}/models/lexicon-pirate
                  ${PROJECT_SOURCE_DIR}/models/lexicon-eagle3
        DESTINATION ${QUIRE_MODELS_DIR})
file(GLOB pages CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/*.md)
install(FILES ${PROJECT_SOURCE_DIR}/README.md ${pages} DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs/performance DESTINATION ${CMAKE_INSTALL_DOCDIR}
        FILES_MATCHING PATTERN "*.md")
install(FILES ${PROJECT_SOURCE_DIR}/deploy/quire.service ${PROJECT_SOURCE_DIR}/deploy/quire-gpu.conf
              ${PROJECT_SOURCE_DIR}/deploy/kubernetes.yaml
              ${PROJECT_SOURCE_DIR}/deploy/leaderworkerset.yaml
              ${PROJECT_SOURCE_DIR}/deploy/leaderworkerset-gpu.yaml ${PROJECT_SOURCE_DIR}/deploy/quire.sbatch
              ${PROJECT_SOURCE_DIR}/deploy/prometheus.yml ${PROJECT_SOURCE_DIR}/deploy/quire.rules.yml
              ${PROJECT_SOURCE_DIR}/deploy/grafana-dashboard.json
        DESTINATION ${CMAKE_INSTALL_DATADIR}/quire/deploy)
install(FILES ${PROJECT_SOURCE_DIR}/packaging/copyright DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES ${PROJECT_SOURCE_DIR}/packaging/quire.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)

# The binary knows its own commands and options, so it writes the completions.
if(TARGET quire)
  install(TARGETS quire RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
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
