// Package conformance tests any device against the statements of the verbs specification that need two
// hosts and a network. The statements are listed in docs/spec/verbs-ids.md. The name of a case begins with
// the statements that it proves: V_QPS_14_V_QPS_13_SendsFail proves V-QPS-14 and V-QPS-13.
//
// A link or provider passes a Setup to Run in a test. Cases use only the public verbs API and a Network,
// which controls time and faults and gives access to counters and raw packets. Each case has a network of
// its own and depends on no other case.
//
// The package imports verbs and internal/wire, which builds invalid packets.
package conformance
