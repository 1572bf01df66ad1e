// Package cabitest has tests that run the installed C programs on the C libraries: "make cabi-test". It has no code of
// its own and needs no cgo.
//
// The tests run if VERBENA_LIB names the folder of the libraries; .ci/cabi sets it. A program that is not installed is
// named in one line, and its tests are skipped.
package cabitest
