#!/usr/bin/env bash
# Prints CMake's options for the GPUs of this machine, one a line: GPU code for these GPUs only, or no CUDA backend
# where there is no GPU or no CUDA toolkit. What a user may want to know goes to standard error.
#
#   scripts/gpu_options.sh
set -euo pipefail

without_cuda() {
  echo "-DQUIRE_CUDA=OFF"
  [ $# -eq 0 ] || echo "$1" >&2
  exit
}

# The one that cmake/QuireCuda.cmake takes.
find_nvcc() {
  if [ -n "${CUDACXX:-}" ]; then
    command -v "$CUDACXX"
  else
    command -v /usr/local/cuda/bin/nvcc || command -v nvcc
  fi
}

gpus=$(nvidia-smi --query-gpu=name,compute_cap --format=csv,noheader 2>/dev/null | sort -u) || gpus=
[ -n "$gpus" ] || without_cuda
if ! find_nvcc >/dev/null; then
  without_cuda "There is a GPU, ${gpus%%,*}, but no CUDA toolkit was found: quire is built for the CPU. NVIDIA's \
packages are cuda-toolkit-13-0 and libnccl-dev."
fi

# A GPU that quire has no code for does not keep it from the others.
architectures=()
skipped=()
while IFS=, read -r name capability; do
  capability=${capability// /}
  case $capability in
    [1-7].*) skipped+=("The $name has compute capability $capability and quire's GPU code needs 8.0") ;;
    8.*) architectures+=("${capability/./}-real") ;;
    9.0) architectures+=(90a-real) ;;
    [1-9]*.*) architectures+=(90a-real 90-virtual) ;; # newer ones compile PTX
    *) skipped+=("nvidia-smi gives the $name no compute capability") ;;
  esac
done <<<"$gpus"
without=CPU
[ ${#architectures[@]} -eq 0 ] || without="other GPUs"
[ ${#skipped[@]} -eq 0 ] || printf "%s: quire is built for the $without.\n" "${skipped[@]}" >&2
[ ${#architectures[@]} -gt 0 ] || without_cuda
list=$(printf '%s\n' "${architectures[@]}" | sort -u | paste -sd ';')
printf '%s\n' -DQUIRE_CUDA=AUTO "-DQUIRE_CUDA_ARCHITECTURES=$list"
