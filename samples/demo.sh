#!/usr/bin/env bash
# The tour: every command is printed before it runs. Usage: samples/demo.sh [folder with qkexport]
set -euo pipefail
bin=$(realpath "${1:-$(dirname "$0")/../.venv/bin}")
cd "$(dirname "$0")/01_convert_a_model"
export PATH="$bin:$PATH"
out=$(realpath -m ../../build/demo)
mkdir -p "$out"

run() {
  printf '\n\033[1m$ %s\033[0m\n' "$*"
  "$@"
}

run qkexport convert model:qwen3 -o "$out/qwen3.onnx" --require-fused all
run qkexport inspect "$out/qwen3.onnx"
run qkexport parity model:qwen3 "$out/qwen3.onnx" --backend ort,ort-stock --require ort,ort-stock \
  --report "$out/parity.html"
run qkexport build "$out/qwen3.onnx" -o "$out/qwen3.engine" --runtime tensorrt-rtx --target sm_89,sm_120
printf '\nAll of it is in %s; open parity.html there.\n' "$out"
