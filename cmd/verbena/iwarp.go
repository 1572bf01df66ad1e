//go:build iwarp

package main

// With -tags iwarp the programs have iWARP devices too (docs/iwarp.md).
import _ "github.com/verbena-rdma/verbena/provider/iwarp"
