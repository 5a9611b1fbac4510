# Two commands do all set-up on a fresh machine: `make demo` and `make test`.
# Everything is installed into $(VENV) and built under build/; nothing else on the machine changes.
SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check
JOBS ?= $(shell nproc)
# The installed package carries CUDA kernels where a GPU can run them.
CUDA ?= $(if $(shell command -v nvidia-smi),AUTO,OFF)
NVCC := $(shell command -v nvcc)

PACKAGE_SOURCES := $(shell find qkexport plugins -type f \
	\( -name '*.py' -o -name '*.h' -o -name '*.cuh' -o -name '*.cu' -o -name '*.cc' -o -name '*.cpp' \
	-o -name '*.cmake' -o -name 'CMakeLists.txt' -o -name '*.map' -o -name '*.txt' -o -name '*.html' \
	-o -name '*.j2' -o -name '*.json' \))
CXX_SOURCES := git ls-files '*.h' '*.cc' '*.cpp' '*.cu' '*.cuh'

.PHONY: help demo test install lint test-cpp test-cuda test-python nightly nightly-threads nightly-cuda bench clean

help:  ## What each target does
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: install  ## Convert a model, run it fused and stock, build an engine, prove them equal
	samples/demo.sh $(BIN)

test: lint test-cpp test-cuda test-python  ## Everything a change must pass

install: $(VENV)/.installed  ## The package with its native libraries, in $(VENV)

# torch first and pinned: unpinned it can be a CUDA build of several GB. timm asks for torchvision,
# which no test needs, so timm comes without its dependencies (transformers brings the rest).
$(VENV)/.packages: pyproject.toml constraints.txt
	@echo "installing packages into $(VENV): some minutes"
	$(PYTHON) -m venv $(VENV)
	$(PIP) -c constraints.txt torch
	$(PIP) -c constraints.txt scikit-build-core cmake ninja
	$(PIP) -c constraints.txt $$($(BIN)/python -c "$$READ_REQUIREMENTS")
	$(PIP) -c constraints.txt --no-deps timm
	touch $@

# The requirements of the package and its extras, read from the one place that states them.
define READ_REQUIREMENTS
import tomllib
project = tomllib.load(open("pyproject.toml", "rb"))["project"]
extras = project["optional-dependencies"]
print(*project["dependencies"], *(r for e in ("cpu", "hf", "rtx", "test") for r in extras[e]))
endef
export READ_REQUIREMENTS

$(VENV)/.installed: $(VENV)/.packages pyproject.toml README.md $(PACKAGE_SOURCES)
	@echo "building the package with its native libraries: some minutes"
	$(PIP) --no-build-isolation --no-deps --force-reinstall \
		--config-settings=cmake.define.QKEXPORT_BUILD_CUDA=$(CUDA) \
		--config-settings=cmake.define.QKEXPORT_BUILD_EMULATION=ON .
	touch $@

lint: $(VENV)/.packages  ## Style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(CXX_SOURCES) | xargs -r $(BIN)/clang-format --dry-run -Werror --style=file:plugins/.clang-format

test-cpp: $(VENV)/.packages  ## C++ tests under AddressSanitizer and UndefinedBehaviorSanitizer
	$(BIN)/cmake -G Ninja -S plugins -B build/cpp -DCMAKE_BUILD_TYPE=RelWithDebInfo \
		-DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DQKEXPORT_BUILD_TESTS=ON \
		-DQKEXPORT_BUILD_CUDA=OFF -DQKEXPORT_SANITIZE=address,undefined -DPython3_EXECUTABLE=$(abspath $(BIN))/python
	$(BIN)/cmake --build build/cpp -j $(JOBS)
	$(BIN)/ctest --test-dir build/cpp --output-on-failure --no-tests=error -LE nightly

# The package above has no CUDA kernels where there is no GPU, but nvcc works without one. Its
# warnings are errors, and the Python tests look at what it built. cuobjdump is not always beside it.
# $(call build_cuda,FOLDER,ARCHITECTURES)
define build_cuda
	command -v cuobjdump || $(PIP) -c constraints.txt nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm
	$(BIN)/cmake -G Ninja -S plugins -B $(1) -DCMAKE_BUILD_TYPE=Release \
		-DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DQKEXPORT_BUILD_CUDA=ON \
		"-DQKEXPORT_CUDA_ARCHITECTURES=$(2)" -DCMAKE_COMPILE_WARNING_AS_ERROR=ON \
		-DPython3_EXECUTABLE=$(abspath $(BIN))/python
	$(BIN)/cmake --build $(1) -j $(JOBS) --target qkexport_cuda qkexport_trt qkexport_ort
endef

test-cuda: $(VENV)/.packages  ## The CUDA libraries for sm_80 and as PTX, where nvcc is
ifneq ($(NVCC),)
	$(call build_cuda,build/cuda-sm80,80)
else
	@echo "NO NVCC: the CUDA libraries are not built, tests of them will say so and skip"
endif

test-python: export QKEXPORT_CUDA_BUILD := $(if $(NVCC),$(abspath build/cuda-sm80))
test-python: install test-cuda  ## Python tests, samples and documents against the installed package
	$(BIN)/pytest -n $(JOBS) --dist loadfile -m "not nightly and not gpu and not tensorrt"

nightly: export QKEXPORT_CUDA_BUILD := $(if $(NVCC),$(abspath build/cuda))
nightly: install test-cpp nightly-threads nightly-cuda  ## Full grids, every family at every opset, long fuzzing
	$(BIN)/ctest --test-dir build/cpp --output-on-failure --no-tests=error
	$(BIN)/pytest -n $(JOBS) --dist loadfile -m "not gpu and not tensorrt"

nightly-threads: $(VENV)/.packages  ## The thread pool and the kernels on it under ThreadSanitizer
	$(BIN)/cmake -G Ninja -S plugins -B build/threads -DCMAKE_BUILD_TYPE=RelWithDebInfo \
		-DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DQKEXPORT_BUILD_TESTS=ON \
		-DQKEXPORT_BUILD_CUDA=OFF -DQKEXPORT_BUILD_EMULATION=OFF -DQKEXPORT_SANITIZE=thread \
		-DPython3_EXECUTABLE=$(abspath $(BIN))/python
	$(BIN)/cmake --build build/threads -j $(JOBS)
	$(BIN)/ctest --test-dir build/threads --output-on-failure --no-tests=error -R 'test_threads|test_attention$$'

# Every architecture that the compiler knows of those that TensorRT serves.
nightly-cuda: $(VENV)/.packages  ## The CUDA libraries for all architectures, where nvcc is
ifneq ($(NVCC),)
	$(call build_cuda,build/cuda,75;80;86;87;89;90;100;120)
else
	@echo "NO NVCC: the CUDA libraries are not built for all architectures"
endif

bench: install  ## Benchmarks: medians and ratios, printed as tables
	for script in tests/benchmarks/bench_*.py; do $(BIN)/python $$script; done

clean:  ## Removes what was built and installed
	rm -rf build dist $(VENV)
