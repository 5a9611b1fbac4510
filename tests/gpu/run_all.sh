#!/usr/bin/env bash
# Everything that needs a GPU, on a machine with nvcc and CMake: build, correctness, sanitizers,
# determinism, graphs, timings. PyTorch only for the comparison at the end. Under ten minutes.
#
#   tests/gpu/run_all.sh [BUILD_FOLDER]
#
# Environment: QKEXPORT_CUDA_ARCHITECTURES (default: that of the first GPU); QKEXPORT_CUDART_DIR, a
# folder with another libcudart, which is then used in place of the GPU's.
# What cannot run is reported as SKIPPED, what takes too long is ended and FAILED. Exit code: 1 where
# anything failed, 3 without a GPU.
set -uo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
build=${1:-$root/build/gpu}
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
  else
    timeout --kill-after=5 "$@"
    local code=$?
    ((code == 124)) && echo "ended after $1 s"
    return $code
  fi
}

architecture() {
  if [[ -n ${QKEXPORT_CUDA_ARCHITECTURES:-} ]]; then
    echo "$QKEXPORT_CUDA_ARCHITECTURES"
  elif command -v nvidia-smi > /dev/null; then
    nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d '.'
  else
    echo 80
  fi
}

configure_and_build() {
  local shared=OFF
  [[ -n ${QKEXPORT_CUDART_DIR:-} ]] && shared=ON
  # TensorRT's headers are not needed here: without an index nothing is asked for on the network.
  PIP_NO_INDEX=1 cmake -S "$root/plugins" -B "$build" -DQKEXPORT_BUILD_CUDA=ON \
    -DQKEXPORT_BUILD_ORT=OFF -DQKEXPORT_BUILD_GPU_TESTS=ON -DQKEXPORT_CUDART_SHARED=$shared \
    "-DQKEXPORT_CUDA_ARCHITECTURES=$(architecture)" > "$build.log" 2>&1 &&
    cmake --build "$build" -j "$(nproc)" --target qkexport_cuda run_cuda_cases_gpu \
      run_far_cuda_cases_gpu test_cuda_device time_cuda_kernels >> "$build.log" 2>&1 && return
  echo "the end of $build.log:"
  tail -30 "$build.log"
  return 1
}

# At once: most of the time is the host's, which computes what is right.
all_cases() {
  local seed pids=() result=0
  for seed in 1 2 3; do
    limited 180 "$programs/run_cuda_cases_gpu" "$seed" 0 257 &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || result=1; done
  return $result
}

sanitize() {  # TOOL
  limited 90 compute-sanitizer --tool "$1" --error-exitcode 1 "$build/gpu/run_cuda_cases_gpu" 1 12 129
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

command -v nvcc > /dev/null || missing nvcc "it is part of the CUDA toolkit, in bin/ of its folder"
command -v cmake > /dev/null || missing "CMake 3.25 or newer" "pip has it, too"
if [[ -z ${QKEXPORT_CUDART_DIR:-} ]] && ! nvidia-smi > /dev/null 2>&1; then
  echo "SKIPPED: there is no NVIDIA GPU (nvidia-smi does not answer), nothing was built or run."
  exit 3
fi
mkdir -p "$(dirname "$build")"
step "build for sm_$(architecture)" configure_and_build
if ((${#failed[@]} > 0)); then
  summary
  exit 1
fi
programs=$build/gpu
if [[ -n ${QKEXPORT_CUDART_DIR:-} ]]; then
  export LD_LIBRARY_PATH=$QKEXPORT_CUDART_DIR${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi
PATH=$PATH:$(dirname "$(command -v nvcc)")  # compute-sanitizer is there

step "cases against float64, seeds 1, 2 and 3" all_cases
step "tensors beyond 2^31 elements" limited 60 "$programs/run_far_cuda_cases_gpu"
step "determinism and CUDA graphs" limited 60 "$programs/test_cuda_device"
for tool in memcheck racecheck; do
  if [[ -n ${QKEXPORT_CUDART_DIR:-} ]]; then
    skip "compute-sanitizer $tool" "another CUDA runtime stands in for the GPU"
  elif command -v compute-sanitizer > /dev/null; then
    step "compute-sanitizer $tool" sanitize "$tool"
  else
    skip "compute-sanitizer $tool" "the tool is not in PATH"
  fi
done

if [[ -n ${QKEXPORT_CUDART_DIR:-} ]]; then
  skip "timings" "another CUDA runtime stands in for the GPU"
else
  step "timings of the kernels alone" limited 120 "$programs/time_cuda_kernels" 10
  if python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2> /dev/null; then
    PYTHONPATH=$root step "comparison with PyTorch" \
      limited 120 python3 "$root/tests/benchmarks/bench_attention_cuda.py" "$build/lib/libqkexport_cuda.so"
  else
    skip "comparison with PyTorch" "python3 has no torch that sees the GPU"
  fi
fi
summary
