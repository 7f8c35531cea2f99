# The architectures that the CUDA backend can be built for.

# Which kernels run is decided by the device, what is in them by the architecture that they were
# compiled for: code for another one than the device's would lack what it was chosen for. Ends the
# configuration where a list would make such a library.
function(quire_check_cuda_architectures) # <architecture>...
  set(wrong "QUIRE_CUDA_ARCHITECTURES is \"${QUIRE_CUDA_ARCHITECTURES}\"")
  set(newest 0)
  set(has_90a OFF)
  set(has_old_ptx OFF)
  set(has_90_ptx OFF)
  foreach(entry ${ARGN})
    if(NOT entry MATCHES "^([0-9]+)([a-z]?)(-real|-virtual)?$")
      message(FATAL_ERROR "${wrong}: name architectures by their numbers, such as 80-real, not ${entry}.")
    endif()
    set(number ${CMAKE_MATCH_1})
    set(features "${CMAKE_MATCH_2}")
    set(kind "${CMAKE_MATCH_3}")
    if(number GREATER newest)
      set(newest ${number})
    endif()
    if("${number}${features}" STREQUAL "90a")
      set(has_90a ON)
    elseif(number EQUAL 90 AND NOT kind STREQUAL "-virtual")
      message(FATAL_ERROR "${wrong}: machine code for 90 lacks the instructions that kernels for these GPUs "
                          "are made of. Write 90a-real instead of ${entry}, and 90-virtual for newer GPUs.")
    endif()
    # PTX with an architecture's own features runs on no other.
    if(NOT kind STREQUAL "-real" AND features STREQUAL "")
      if(number LESS 90)
        set(has_old_ptx ON)
      elseif(number EQUAL 90)
        set(has_90_ptx ON)
      endif()
    endif()
  endforeach()
  if(newest GREATER_EQUAL 90 AND NOT has_90a)
    message(FATAL_ERROR "${wrong}: with 90 or newer, name 90a-real too. GPUs of compute capability 9.0 run "
                        "kernels that only it holds.")
  endif()
  if(has_old_ptx AND NOT has_90_ptx)
    message(FATAL_ERROR "${wrong}: GPUs of compute capability 9.0 and newer could run the PTX for an older one, "
                        "in which their kernels are empty. Write -real behind every architecture below 90, "
                        "or name 90a-real and 90-virtual too.")
  endif()
endfunction()
