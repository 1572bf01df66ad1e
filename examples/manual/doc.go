// Package manual has the sample programs of the verbs manual in Go, one example each: E-01 to E-21, listed in
// examples/README.md. `go test` runs them on a network in memory and checks their output.
package manual
