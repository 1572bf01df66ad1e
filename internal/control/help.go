package control

// help describes the counters of devices and QPs. The pages and the metrics have these texts.
var help = map[string]string{
	"duplicate_request":          "Requests received again, because the peer missed the answer to the first one.",
	"out_of_sequence":            "Packets dropped because an earlier one is missing: loss towards this end.",
	"send_rnr_err":               "RNR NAKs sent: a message arrived and no receive was posted.",
	"resp_local_length_error":    "Messages refused because they are longer than the receive buffer.",
	"resp_remote_access_errors":  "Requests of the peer refused: wrong rkey, range or access flags.",
	"resp_cqe_error":             "Receives completed with an error.",
	"rx_write_requests":          "RDMA WRITE requests of the peer that were executed.",
	"rx_read_requests":           "RDMA READ requests of the peer that were executed.",
	"rx_atomic_requests":         "Atomic requests of the peer that were executed.",
	"recv_dropped":               "UC and UD messages dropped: no receive posted, too long, or incomplete.",
	"packet_seq_err":             "NAKs of a missing packet received: loss towards the peer.",
	"local_ack_timeout_err":      "ACK timeouts: no answer came in time, and the requests were sent again.",
	"rcvd_rnr_err":               "RNR NAKs received: the peer had no receive posted.",
	"rnr_nak_retry_err":          "QPs that failed because the peer had no receive posted for too long.",
	"retry_exceeded_err":         "QPs that failed because the peer did not answer after all retries.",
	"req_remote_access_errors":   "Requests that the peer refused: wrong rkey, range or access flags.",
	"req_remote_invalid_request": "Requests that the peer refused as invalid.",
	"implied_nak_seq_err":        "Lost responses that later ones have proven: loss towards this end.",
	"retransmit_packets":         "Packets sent again.",
	"tx_data_bytes":              "Payload bytes sent by queue pairs, those sent again included.",
	"rx_data_bytes":              "Payload bytes received and accepted by queue pairs.",
	"bad_pkey":                   "Packets dropped: wrong P_Key.",
	"bad_qkey":                   "Datagrams dropped: wrong Q_Key.",
	"bad_source":                 "Packets dropped: not from the address of the queue pair's peer.",
	"bad_state":                  "Packets dropped: the queue pair's state does not accept them.",
	"bad_opcode":                 "Packets dropped: the opcode is not one of the queue pair's type.",
	"bad_duplicate":              "Repeated requests dropped: their responses are no longer kept.",
	"sent_pkts":                  "Packets sent.",
	"tx_bytes":                   "Bytes sent, from the BTH to the ICRC.",
	"rcvd_pkts":                  "Packets received.",
	"rx_bytes":                   "Bytes received, from the BTH to the ICRC.",
	"send_err":                   "Packets that this host did not send: no route, a firewall, full buffers, too long.",
	"tx_too_long":                "Packets of send_err that exceed the MTU of the interface or the route.",
	"rx_icrc_errors":             "Packets dropped: wrong invariant CRC. They were changed on the way.",
	"rx_malformed":               "Packets dropped: too short, or an undefined opcode.",
	"rx_screened":                "Management packets dropped early because nobody has asked for them.",
	"mail_dropped":               "Packets for other processes at the address, dropped because these had no room.",
	"shm_tx_packets":             "Packets of sent_pkts that went through shared memory.",
	"shm_rx_packets":             "Packets of rcvd_pkts that came through shared memory.",
	"shm_refs":                   "Packets of shm_tx_packets by reference: the receiver reads the payload in place.",
	"shm_revoked":                "Packets by reference dropped: their sender had reused the memory.",
	"shm_foreign":                "Packets through shared memory dropped: not from an address of this host.",
	"shm_broken":                 "Shared memory connections ended because the peer broke the protocol.",
	"unknown_qpn":                "Packets dropped: no such queue pair. The peer's connection is an old one.",
	"unknown_group":              "Multicast packets dropped: no queue pair is attached to the group.",
	"inbox_dropped":              "Packets dropped: the queue of the thread that has the queue pair was full.",
}

// cmHelp describes the counters of connection management. The part of a name before a slash is the key.
var cmHelp = map[string]string{
	"cm_tx_msgs":        "Connection management messages sent, by message, repetitions included.",
	"cm_tx_retries":     "Messages repeated because no answer came, by message.",
	"cm_rx_msgs":        "Well-formed connection management messages received, by message.",
	"cm_rx_duplicates":  "Messages received before, by message.",
	"rx_malformed":      "Packets dropped: not a connection management message.",
	"rx_invalid":        "Messages dropped: a field has an invalid value.",
	"rx_spoofed":        "Messages dropped: about a connection, but not from its peer's address.",
	"rx_unmatched":      "Messages about a connection that does not exist.",
	"stale":             "Requests and replies from a queue pair that had a connection already.",
	"backlog_full":      "Requests dropped: the program does not fetch them fast enough (backlog).",
	"table_full":        "Requests dropped: too many IDs.",
	"half_open_dropped": "Requests dropped: too many half-open handshakes, as in a flood.",
	"half_open_evicted": "Half-open handshakes ended in favour of another.",
	"answers_limited":   "Messages about something that does not exist, beyond the rate of their answers.",
	"deaths":            "Connections ended by the death of the peer's process.",
	"mad_sent":          "Management packets (MADs) sent through QP 1.",
	"mad_tx_dropped":    "MADs that could not be sent.",
	"mad_received":      "MADs received by QP 1.",
	"mad_malformed":     "MADs dropped: malformed.",
	"mad_unclaimed":     "MADs dropped: no program handles their class.",
	"mad_spoofed":       "MADs dropped: not from where they claim to be.",
	"mad_queue_full":    "MADs dropped: the program did not read them fast enough.",
}

// Help describes a counter of a device or QP in one sentence. It is empty for an unknown name, as another version of
// a program may have.
func Help(counter string) string { return help[counter] }

// HelpCM describes a counter of connection management; message is a name without what follows the slash.
func HelpCM(message string) string { return cmHelp[message] }
