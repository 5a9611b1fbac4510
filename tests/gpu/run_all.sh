#!/usr/bin/env bash
# Everything that needs a GPU, on a machine with nvcc and CMake: build, correctness, sanitizers,
# determinism, graphs, timings. PyTorch only for its op and for the comparison at the end. Under ten
# minutes.
#
#   tests/gpu/run_all.sh [BUILD_FOLDER]
#
# What it prints is kept in BUILD_FOLDER.report as it comes. Environment:
#   QKEXPORT_GPU_SECONDS         time for all of it (default: 570), of which the timings get 150
#   QKEXPORT_CUDA_ARCHITECTURES  default: that of the first GPU, or PTX where nvcc is older
#   QKEXPORT_GPU_CASES           cases of each seed (default: 0, all pairs of choices)
#   QKEXPORT_CUDART_DIR          a folder with another libcudart, used in place of the GPU's
# What cannot run is reported as SKIPPED, what takes too long is ended and FAILED. Exit code: 1 where
# anything failed, 3 without a GPU.
set -uo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
build=${1:-$root/build/gpu}
seconds=${QKEXPORT_GPU_SECONDS:-570}
for_timings=150
until=$((seconds - for_timings))  # when the present step must have ended
failed=() skipped=()

step() {  # NAME COMMAND...
  local name=$1 begin=$SECONDS
  shift
  echo "=== $name"
  "$@" || failed+=("$name")
  echo "    $((SECONDS - begin)) s"
}

skip() {  # NAME REASON
  echo "=== $1: SKIPPED, $2"
  skipped+=("$1: $2")
}

# A hang must not take the ten minutes. Another CUDA runtime may be as slow as it likes.
limited() {  # SECONDS COMMAND...
  if [[ -n ${QKEXPORT_CUDART_DIR:-} ]]; then
    "${@:2}"
    return
  fi
  local limit=$((until - SECONDS < $1 ? until - SECONDS : $1))
  if ((limit <= 0)); then
    echo "not begun: no time is left"
    return 1
  fi
  timeout --kill-after=5 "$limit" "${@:2}"
  local code=$?
  ((code == 124 || code == 137)) && echo "ended after $limit s"
  return $code
}

gpu() {  # FIELD of the first GPU
  nvidia-smi "--query-gpu=$1" --format=csv,noheader 2> /dev/null | head -1
}

architecture() {
  local found=''
  [[ -z ${QKEXPORT_CUDART_DIR:-} ]] && found=$(gpu compute_cap | tr -d '.')
  if [[ -n ${QKEXPORT_CUDA_ARCHITECTURES:-} ]]; then
    echo "$QKEXPORT_CUDA_ARCHITECTURES"
  elif [[ -n $found ]] && nvcc --list-gpu-arch | grep -qx "compute_$found"; then
    echo "$found"
  else
    echo 80
  fi
}

describe_machine() {
  [[ -z ${QKEXPORT_CUDART_DIR:-} ]] && gpu name,driver_version,compute_mode,memory.total
  nvcc --version | grep release
  echo "$(nproc) processors"
}

configure_and_build() {
  local shared=OFF
  [[ -n ${QKEXPORT_CUDART_DIR:-} ]] && shared=ON
  # TensorRT's headers are not needed here: without an index nothing is asked for on the network.
  PIP_NO_INDEX=1 limited 60 cmake -S "$root/plugins" -B "$build" -DQKEXPORT_BUILD_CUDA=ON \
    -DQKEXPORT_BUILD_ORT=OFF -DQKEXPORT_BUILD_GPU_TESTS=ON -DQKEXPORT_CUDART_SHARED=$shared \
    "-DQKEXPORT_CUDA_ARCHITECTURES=$(architecture)" > "$build.log" 2>&1 &&
    limited 300 cmake --build "$build" -j "$(nproc)" --target qkexport_cuda run_cuda_cases_gpu \
      run_far_cuda_cases_gpu test_cuda_device time_cuda_kernels >> "$build.log" 2>&1 && return
  echo "the end of $build.log:"
  tail -30 "$build.log"
  return 1
}

cases_of_seed() {  # SEED
  limited 180 "$programs/run_cuda_cases_gpu" "$1" "${QKEXPORT_GPU_CASES:-0}" 257
}

# At once, where the GPU takes several processes: most of the time is the host's, which computes
# what is right.
all_cases() {
  local seed pids=() result=0
  for seed in 1 2 3; do
    if [[ $(gpu compute_mode) == Exclusive* ]]; then
      cases_of_seed "$seed" || result=1
    else
      cases_of_seed "$seed" &
      pids+=($!)
    fi
  done
  for pid in ${pids[@]+"${pids[@]}"}; do wait "$pid" || result=1; done
  return $result
}

sanitize() {  # TOOL
  limited 60 compute-sanitizer --tool "$1" --error-exitcode 1 "$programs/run_cuda_cases_gpu" 1 12 129
}

torch_op() {
  QKEXPORT_LIBRARY_DIR=$build/lib PYTHONPATH=$root limited 60 python3 -m pytest -q \
    -o filterwarnings=default -p no:cacheprovider "$root/tests/gpu/test_torch_on_gpu.py"
}

has_torch() {  # PACKAGE... that are wanted beside it
  python3 -c "
import sys, torch
for name in sys.argv[1:]: __import__(name)
sys.exit(sys.version_info < (3, 11) or not torch.cuda.is_available())" "$@" 2> /dev/null
}

check() {
  step "cases against float64, seeds 1, 2 and 3" all_cases
  step "determinism and CUDA graphs" limited 60 "$programs/test_cuda_device"
  step "tensors beyond 2^31 elements" limited 60 "$programs/run_far_cuda_cases_gpu"
  if [[ -n ${QKEXPORT_CUDART_DIR:-} ]]; then
    skip "the PyTorch op" "another CUDA runtime stands in for the GPU"
  elif has_torch pytest hypothesis; then
    step "the PyTorch op" torch_op
  else
    skip "the PyTorch op" "python3 is older than 3.11 or lacks a torch that sees the GPU, pytest or hypothesis"
  fi
  for tool in memcheck racecheck; do
    if [[ -n ${QKEXPORT_CUDART_DIR:-} ]]; then
      skip "compute-sanitizer $tool" "another CUDA runtime stands in for the GPU"
    elif command -v compute-sanitizer > /dev/null; then
      step "compute-sanitizer $tool" sanitize "$tool"
    else
      skip "compute-sanitizer $tool" "the tool is not in PATH"
    fi
  done
}

measure() {
  until=$seconds
  if [[ -n ${QKEXPORT_CUDART_DIR:-} ]]; then
    skip "timings" "another CUDA runtime stands in for the GPU"
    return
  fi
  step "timings of the kernels alone" limited 90 "$programs/time_cuda_kernels" 10
  if has_torch; then
    PYTHONPATH=$root step "comparison with PyTorch" limited 120 \
      python3 "$root/tests/benchmarks/bench_attention_cuda.py" "$build/lib/libqkexport_cuda.so"
  else
    skip "comparison with PyTorch" "python3 is older than 3.11 or has no torch that sees the GPU"
  fi
}

summary() {
  echo
  ((${#skipped[@]} > 0)) && printf 'SKIPPED %s\n' "${skipped[@]}"
  if ((${#failed[@]} > 0)); then
    printf 'FAILED %s\n' "${failed[@]}"
    return 1
  fi
  echo "Nothing failed."
}

missing() {  # RULE NOTE
  echo "FAILED: tests/gpu needs $1, got none in PATH."
  echo "Note: $2"
  exit 1
}

run_all() {
  describe_machine
  step "build for sm_$(architecture)" configure_and_build
  # Where nothing runs at all, one reason says more than hundreds.
  ((${#failed[@]} == 0)) &&
    step "a first run" limited 60 "$programs/time_cuda_kernels" 0 prefill_1k
  if ((${#failed[@]} == 0)); then
    check
    measure
  fi
  summary
}

# Toolkits are often installed without being in PATH; compute-sanitizer is beside nvcc.
PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin
command -v nvcc > /dev/null || missing nvcc "it is part of the CUDA toolkit, in bin/ of its folder"
PATH=$PATH:$(dirname "$(command -v nvcc)")
command -v cmake > /dev/null || missing "CMake 3.22 or newer" "pip has it, too"
if [[ -z ${QKEXPORT_CUDART_DIR:-} ]] && ! nvidia-smi > /dev/null 2>&1; then
  echo "SKIPPED: there is no NVIDIA GPU (nvidia-smi does not answer), nothing was built or run."
  exit 3
fi
mkdir -p "$(dirname "$build")"
programs=$build/gpu
if [[ -n ${QKEXPORT_CUDART_DIR:-} ]]; then
  export LD_LIBRARY_PATH=$QKEXPORT_CUDART_DIR${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi
run_all 2>&1 | tee "$build.report"
