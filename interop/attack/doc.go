// Attack runs the attacks of a hostile peer, an unrelated host and another user on running programs, and reports
// whether the programs withstood them, with figures:
//
//	go run ./interop/attack [-list] [-run REGEXP]
//
// It works in its own network namespace, for which it needs root or user namespaces. Cases that need several users
// need root. A case that this machine cannot run counts neither as passed nor as failed. docs/security.md describes
// the cases. Attack imports rdmacm, verbs, provider/soft, interop/internal/proc, internal/{refuse,wire},
// internal/wire/cmmsg and internal/untrusted/lingering.
package main
