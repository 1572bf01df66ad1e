// Package pcap writes the packets of a device as pcapng, which Wireshark reads.
//
// A Sink is one device's part of a capture: it makes the taps of the shards (link.Tap) and turns packets into
// blocks. All packets are written as RoCEv2 over UDP and IP, also those through shared memory, with IPv4
// identification 0, DF, and a source port made from the QP number. Their ICRC fits the written headers, since the
// link's own headers are not known here. Each packet has a comment: the QP, the work request, and the reason of a
// retransmission or drop.
//
// Verbena has its own small writer because every program links the provider, and the libraries contain all
// protocols. The package imports internal/link and internal/wire.
package pcap
