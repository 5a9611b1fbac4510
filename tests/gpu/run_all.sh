#!/usr/bin/env bash
# Everything that needs a GPU, on a machine with nvcc and CMake: build, correctness, sanitizers,
# determinism, graphs, timings. PyTorch only for the comparison at the end. Under ten minutes.
#
#   tests/gpu/run_all.sh [BUILD_FOLDER]
#
# Environment: QKEXPORT_CUDA_ARCHITECTURES (default: that of the first GPU); QKEXPORT_CUDART_DIR, a
# folder with another libcudart, which is then used in place of the GPU's.
# What cannot run is reported as SKIPPED. Exit code: 1 where anything failed, 3 without a GPU.
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
  cmake -S "$root/plugins" -B "$build" -DQKEXPORT_BUILD_CUDA=ON -DQKEXPORT_BUILD_ORT=OFF \
    -DQKEXPORT_BUILD_GPU_TESTS=ON -DQKEXPORT_CUDART_SHARED=$shared \
    "-DQKEXPORT_CUDA_ARCHITECTURES=$(architecture)" > "$build.log" 2>&1 &&
    cmake --build "$build" -j "$(nproc)" --target qkexport_cuda run_cuda_cases_gpu \
      test_cuda_device time_cuda_kernels >> "$build.log" 2>&1 && return
  tail -30 "$build.log"
  return 1
}

sanitize() {  # TOOL
  compute-sanitizer --tool "$1" --error-exitcode 1 "$build/gpu/run_cuda_cases_gpu" 1 12 129
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

if ! command -v nvcc > /dev/null; then
  echo "FAILED: tests/gpu needs nvcc, got none in PATH."
  exit 1
fi
mkdir -p "$(dirname "$build")"
step "build for sm_$(architecture)" configure_and_build
if ((${#failed[@]} > 0)); then
  summary
  exit 1
fi
programs=$build/gpu
cases_seeds=(1 2 3)
if [[ -n ${QKEXPORT_CUDART_DIR:-} ]]; then
  export LD_LIBRARY_PATH=$QKEXPORT_CUDART_DIR${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
elif ! command -v nvidia-smi > /dev/null || ! nvidia-smi > /dev/null 2>&1; then
  skip "all runs" "there is no NVIDIA GPU"
  summary
  exit 3
fi

for seed in "${cases_seeds[@]}"; do
  step "cases against float64, seed $seed" "$programs/run_cuda_cases_gpu" "$seed" 0 257
done
step "determinism and CUDA graphs" "$programs/test_cuda_device"
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
  step "timings of the kernels alone" "$programs/time_cuda_kernels" 10
  if python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2> /dev/null; then
    PYTHONPATH=$root step "comparison with PyTorch" \
      python3 "$root/tests/benchmarks/bench_attention_cuda.py" "$build/lib/libqkexport_cuda.so"
  else
    skip "comparison with PyTorch" "python3 has no torch that sees the GPU"
  fi
fi
summary
