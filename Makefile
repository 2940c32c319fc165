# The front door. CMakeLists.txt does the work; variables that matter:
#   PREFIX=/usr/local     where `make install` goes        LEVER_LLAMA=AUTO   where ggml and libllama come from
#   CMAKE_FLAGS=          more options for cmake           TESTS=             regular expression: only these tests
#                                                         BENCH=             options and names for bench/run.py
PREFIX ?= /usr/local
LEVER_LLAMA ?= AUTO
CMAKE_FLAGS ?=
BENCH ?=
TESTS ?=
JOBS ?= $(shell nproc 2>/dev/null || echo 2)

configure  = cmake -S . -B build/$(1) -DLEVER_LLAMA=$(LEVER_LLAMA) $(CMAKE_FLAGS) $(2)
compile    = cmake --build build/$(1) -j $(JOBS)
# One test after the other: most of them keep all processors busy by themselves.
run_tests  = ctest --test-dir build/$(1) --output-on-failure $(if $(TESTS),-R '$(TESTS)') $(2)

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help setup build demo test soak lint asan tsan bench report install format clean

help:    ## this list
	@sed -n 's/^\([a-z]*\): [^#]*## \(.*\)/  make \1\t\2/p; s/^\([a-z]*\): *## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18

setup:   ## install what building and testing want (Debian packages)
	@tools/setup.sh test

build:   ## library and command, in build/release
	@tools/setup.sh build
	$(call configure,release,-DLEVER_WERROR=OFF -DLEVER_TESTS=OFF)
	$(call compile,release)

demo: build ## build, fetch the default pair of models, answer a prompt with 700 MiB
	build/release/lever pull
	build/release/lever run --ram 700M "Write a quicksort in C."

test: setup ## build and run every test but the long ones
	$(call configure,test)
	$(call compile,test)
	$(call run_tests,test,-LE soak)

soak: setup ## the long tests
	$(call configure,test)
	$(call compile,test)
	$(call run_tests,test,-L soak)

lint:    ## format, clang-tidy, cppcheck, layers, exported symbols, gcc and clang without a warning
	@tools/setup.sh lint
	@tools/lint.sh

asan: setup ## the tests under the address and undefined-behaviour sanitizers
	$(call configure,asan,-DLEVER_SANITIZE=address)
	$(call compile,asan)
	$(call run_tests,asan,-LE soak)

tsan: setup ## the tests under the thread sanitizer, ggml included
	$(call configure,tsan,-DLEVER_SANITIZE=thread)
	$(call compile,tsan)
	$(call run_tests,tsan,-LE soak)

bench: build ## measurements against llama.cpp (bench/)
	python3 bench/run.py --lever build/release/lever $(BENCH)

report:  ## tables and figures of docs/RESULTS.md from the rows in docs/results/raw
	python3 bench/report.py --update

install: build ## into PREFIX
	cmake --install build/release --prefix $(PREFIX)

format:  ## clang-format on every C file
	@tools/lint.sh --format

clean:   ## remove build/ (the built ggml stays in the cache folder)
	rm -rf build
