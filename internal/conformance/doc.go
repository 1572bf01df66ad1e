// Package conformance holds any device against the statements of the verbs' specification that need two machines and a
// network between them. The statements are listed in docs/spec/verbs-ids.md; the name of a case says which of them it
// holds: V_QPS_14_V_QPS_13_SendsFail is a case of V-QPS-14 and V-QPS-13.
//
// A link or provider gives a Setup and calls Run in a test. Cases see the public verbs API and a Network only: what they
// need of time, faults, counters and raw packets. Each case gets a network of its own, so that none depends on
// another.
//
// The package imports verbs and internal/wire, for packets that no correct peer sends.
package conformance
