// Package pcap writes what a device sends and receives as pcapng, which Wireshark reads.
//
// A Sink is one device's part of a capture: it makes the taps of the shards (link.Tap) and turns
// packets into blocks. What leaves the process by whatever link, shared memory included, is written as RoCEv2 over
// UDP and IP, with an ICRC made for the headers that are written:
// the link's own are not known here. They have IPv4 identification 0, DF, and a source port made from the QP number. Each packet
// has a comment: the QP, the work request, why it is sent again or was dropped.
//
// The writer is small and our own because the provider, which every program links, needs it; the libraries bring all
// protocols of the world along. The package imports internal/link and internal/wire.
package pcap
