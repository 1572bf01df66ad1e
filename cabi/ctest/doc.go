// Package ctest has C programs that test the C libraries, and the test that compiles and runs them. It has no code of
// its own and needs no cgo.
//
// The tests run if VERBENA_LIB names the folder of the libraries, and gcc and the headers of libibverbs-dev are
// installed.
package ctest
