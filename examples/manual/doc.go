// Package manual has the sample programs of the verbs manual in Go, one example each (E-01 to E-21 of the checklist). They run in
// `go test`, on a network in memory, and what they print is checked. examples/README.md lists them.
package manual
