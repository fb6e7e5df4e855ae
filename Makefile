# Thin wrappers over meson and ninja. Directories that start with build are not tracked.
#   make demo        install what is missing (apt), build, show the program on the bundled model: about two minutes
#   make build       the same without the show: build/src/cli/mote
#   make test        all that CI runs: both compilers, sanitizers, hidden CPU levels, fuzzers for 10 s each
#   make test-long   every fuzzer for 10 minutes; the result goes to docs/results
#   make install     into PREFIX (default /usr/local); DESTDIR is respected
PREFIX ?= /usr/local

.PHONY: build demo test test-long install clean
build: build/build.ninja
	ninja -C build
build/build.ninja:
	tools/setup.sh build
	meson setup build --prefix=$(PREFIX)
demo: build
	tools/demo.sh build/src/cli/mote models/nano
test:
	tools/setup.sh test
	tools/test.sh
test-long:
	tools/setup.sh test
	tools/test-long.sh
install: build
	meson install -C build --no-rebuild
clean:
	rm -rf build build-*
