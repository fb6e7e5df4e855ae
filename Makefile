# Thin wrappers over meson and ninja. Directories that start with build are not tracked.
#   make demo        install what is missing (apt), build, show the program on the bundled model: about two minutes
#   make build       the same without the show: build/src/cli/mote and the library, nothing else
#   make test        all that CI runs: the demo without NumPy, both compilers, sanitizers, hidden CPU levels, fuzzers for 6 s each
#   make test-long   every fuzzer for 10 minutes; the result goes to docs/results
#   make format      clang-format over the C sources, as CI wants them
#   make install     into PREFIX (default /usr/local); DESTDIR is respected
#   make uninstall   remove what the last install from here wrote
PREFIX ?= /usr/local

.PHONY: build demo test test-long format install uninstall clean
build: build/build.ninja
	ninja -C build
build/build.ninja:
	tools/setup.sh build
	meson setup build --prefix="$(PREFIX)" -Dtests=disabled
demo: build
	tools/demo.sh build/src/cli/mote models/nano
test:
	tools/test.sh
format:
	tools/format.sh
test-long:
	tools/setup.sh test
	tools/test-long.sh
# A build made for another PREFIX is made for this one first: mote.pc names it.
install: build
	meson configure build --prefix="$(PREFIX)"
	ninja -C build
	meson install -C build --no-rebuild
uninstall:
	tools/uninstall.sh build/meson-logs/install-log.txt
clean:
	rm -rf build build-*
