// Package proc starts programs, collects their output and ends them, for the suites in interop and interop/attack. It
// imports only the standard library.
package proc
