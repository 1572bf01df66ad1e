package perftest

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/verbena-rdma/verbena/internal/tools/chart"
	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/verbs"
)

// options of the command line.
type options struct {
	*test
	server string // the host to connect to; empty for the server itself

	tcpPort    uint16
	device     string
	ibPort     uint8
	size       int
	all        bool
	mtuSize    bool // UD without -s: messages as long as the MTU
	iters      int
	duration   int // seconds; 0 runs iters
	margin     int
	numQP      int
	txDepth    int
	rxDepth    int
	pathMTU    int // bytes; 0 is the port's
	typ        verbs.QPType
	gidIndex   int // index; below 0: by the peer's address
	cm         bool
	events     bool
	inline     int
	noPeak     bool
	postList   int
	duplex     bool
	outReads   int // 0: the device's maximum
	cmpSwap    bool
	gbits      bool
	unsorted   bool
	histogram  bool
	cqMod      int
	timeout    uint8
	sl         uint8
	tos        int
	json, plot string
	extras
}

const (
	maxAll     = 23 // -a ends at 2^23 bytes
	maxSize    = 1 << 30
	maxIters   = 100_000_000
	maxQPs     = 8192
	maxDepth   = 15000
	unreliable = 16000 // default limit for the receives of UC and UD
)

// words has options as text, before they are interpreted.
type words struct {
	size, connection, atomicType string
	tcpPort, ibPort, timeout, sl int
}

// define adds the test's options to f.
func (o *options) define(f *tool.Flags, w *words) {
	t := o.test
	f.IntVarP(&w.tcpPort, "port", "p", 18515, "exchange addresses over this TCP port")
	f.StringVarP(&o.device, "ib-dev", "d", "", "use this device (default: the one that reaches the peer)")
	f.IntVarP(&w.ibPort, "ib-port", "i", 1, "use this port of the device")
	if t.verb != atomic {
		f.StringVarP(&w.size, "size", "s", t.defaultSize(), "bytes of a message; K and M are 2^10 and 2^20")
		f.BoolVarP(&o.all, "all", "a", false, "sizes from 2 to 2^23")
	}
	f.IntVarP(&o.iters, "iters", "n", t.defaultIters(), "messages of each QP, at least 5")
	f.IntVarP(&o.duration, "duration", "D", 0,
		"run for this many seconds; for SEND and WRITE latency give it at both ends")
	f.IntVarP(&o.margin, "margin", "f", -1, "seconds not measured at the beginning and the end of -D; below 0: a quarter")
	f.IntVarP(&o.numQP, "qp", "q", 1, "number of QPs")
	f.IntVarP(&o.txDepth, "tx-depth", "t", map[bool]int{false: 128, true: 1}[t.lat], "sends in flight")
	if t.verb == send {
		f.IntVarP(&o.rxDepth, "rx-depth", "r", 512, "receives posted")
	}
	f.IntVarP(&o.pathMTU, "mtu", "m", 0, "path MTU: 256, 512, 1024, 2048 or 4096 (default: the port's)")
	f.StringVarP(&w.connection, "connection", "c", "RC", "RC, XRC, UC (SEND and WRITE) or UD (SEND)")
	f.IntVarP(&o.gidIndex, "gid-index", "x", -1, "GID index of the port; below 0: by the peer's address")
	f.BoolVarP(&o.cm, "rdma_cm", "R", false, "connect the QPs with rdma_cm, and exchange over it too")
	f.BoolP("CPU-freq", "F", false, "ignored; the C programs accept varying CPU frequencies with it")
	f.BoolVarP(&o.events, "events", "e", false, "sleep until a completion event (default: poll)")
	if !t.verb.waits() {
		f.IntVarP(&o.inline, "inline_size", "I", 0, "send messages of up to this many bytes inline")
	}
	if t.lat {
		f.BoolVarP(&o.unsorted, "report-unsorted", "U", false, "print all results")
		f.BoolVarP(&o.histogram, "report-histogram", "H", false, "print all results, sorted")
	} else {
		f.IntVarP(&o.postList, "post_list", "l", 1, "post this many requests at a time")
		f.BoolVarP(&o.duplex, "bidirectional", "b", false, "both ends send; give it at both ends")
		f.BoolVar(&o.gbits, "report_gbits", false, "report Gb/sec instead of MB/sec (2^20 bytes)")
		f.IntVarP(&o.cqMod, "cq-mod", "Q", 100, "one completion for this many requests")
		f.BoolVarP(&o.noPeak, "noPeak", "N", false, "do not compute the peak; 0 is reported")
	}
	if t.verb.waits() {
		f.IntVarP(&o.outReads, "outs", "o", 0, "READs and atomics in flight (default: the device's maximum, at most 16)")
	}
	if t.verb == atomic {
		f.StringVarP(&w.atomicType, "atomic_type", "A", "FETCH_AND_ADD", "CMP_AND_SWAP or FETCH_AND_ADD")
	}
	f.IntVarP(&w.timeout, "qp-timeout", "u", 14, "ACK timeout of QPs: 4 us * 2^timeout")
	f.IntVarP(&w.sl, "sl", "S", 0, "service level")
	f.IntVarP(&o.tos, "tos", "T", -1, "type of service; with -R only")
	o.extras.define(t, f)
	f.StringVar(&o.json, "json", "", "write the results to this file, - for standard output, as JSON")
	f.StringVar(&o.plot, "plot", "", "draw size against result in this file (.svg or .png)")
}

// elsewhere names the tests that have an option.
func elsewhere(option string) string {
	var have []string
	for _, t := range tests {
		f := tool.NewFlags(&tool.Env{}, "")
		(&options{test: t}).define(f, &words{})
		if f.Has(option) {
			have = append(have, t.name)
		}
	}
	if have == nil {
		return "no ib_* program here has it; omit it at both ends"
	}
	return "it is an option of " + strings.Join(have, ", ")
}

func (t *test) parse(env *tool.Env, args []string) (o *options, status int, ok bool) {
	o = &options{test: t}
	f := tool.NewFlags(env, "[options]        wait for a client\n[options] HOST   connect to the server at HOST")
	f.Elsewhere = elsewhere
	var w words
	o.define(f, &w)
	if status, ok := f.Parse(args); !ok {
		return nil, status, false
	}
	if f.NArg() > 1 {
		return nil, f.Misused("more than one host"), false
	}
	if o.version {
		fmt.Fprintf(env.Stdout, "Version: %s\n", version)
		return nil, 0, false
	}
	o.server = f.Arg(0)
	err := o.interpret(&w, f.Changed)
	if err == nil {
		err = o.check()
	}
	if err == nil {
		err = o.checkExtras(f.Changed)
	}
	if err != nil {
		return nil, f.Misused(err.Error()), false
	}
	o.depend(f.Changed("rx-depth"), f.Changed("cq-mod"), f.Changed("size"))
	return o, 0, true
}

func (t *test) defaultSize() string {
	if t.lat {
		return "2"
	}
	return "65536"
}

func (t *test) defaultIters() int {
	if t.verb == write && !t.lat {
		return 5000
	}
	return 1000
}

// inRange rejects a number outside its range.
func inRange(what string, v, least, most int) error {
	switch {
	case v != least && least == most:
		return fmt.Errorf("%s %d: must be %d", what, v, least)
	case v < least || v > most:
		return fmt.Errorf("%s %d: must be %d to %d", what, v, least, most)
	}
	return nil
}

const maxDuration = 1 << 20 // seconds

// interpret reads the options that need more than their type; changed reports whether an option was given.
func (o *options) interpret(w *words, changed func(name string) bool) error {
	if err := cmp.Or(
		inRange("TCP port", w.tcpPort, 1, 65535),
		inRange("device port", w.ibPort, 1, 255),
		inRange("QP timeout", w.timeout, 0, 31),
		inRange("service level", w.sl, 0, 15),
	); err != nil {
		return err
	}
	o.tcpPort, o.ibPort, o.timeout, o.sl = uint16(w.tcpPort), uint8(w.ibPort), uint8(w.timeout), uint8(w.sl)
	if changed("tos") && (o.tos < 0 || o.tos > 255) {
		return fmt.Errorf("type of service %d: must be 0 to 255", o.tos)
	}
	if changed("duration") && (o.duration < 1 || o.duration > maxDuration) {
		return fmt.Errorf("duration %d: must be 1 to %d seconds; omit -D to use -n", o.duration, maxDuration)
	}
	if changed("margin") && o.margin < 0 {
		return fmt.Errorf("margin %d: must be at least 0 seconds and less than half of -D", o.margin)
	}
	o.size = 8
	if o.verb != atomic {
		size, err := sizeOf(w.size)
		if err != nil {
			return err
		}
		o.size = size
	}
	switch strings.ToUpper(w.connection) {
	case "RC":
		o.typ = verbs.QPTypeRC
	case "UC":
		o.typ = verbs.QPTypeUC
	case "UD":
		o.typ = verbs.QPTypeUD
	case "XRC":
		o.typ = verbs.QPTypeXRCSend
	default:
		return fmt.Errorf("connection type %q: must be RC, XRC, UC or UD", w.connection)
	}
	switch w.atomicType {
	case "", "FETCH_AND_ADD":
	case "CMP_AND_SWAP":
		o.cmpSwap = true
	default:
		return fmt.Errorf("atomic type %q: must be CMP_AND_SWAP or FETCH_AND_ADD", w.atomicType)
	}
	return nil
}

// sizeOf parses a message size.
func sizeOf(text string) (int, error) {
	n, factor := text, 1
	switch {
	case strings.HasSuffix(text, "K"):
		n, factor = text[:len(text)-1], 1<<10
	case strings.HasSuffix(text, "M"):
		n, factor = text[:len(text)-1], 1<<20
	}
	v, err := strconv.Atoi(n)
	if err != nil || v < 1 || v > maxSize/factor {
		return 0, fmt.Errorf("message size %q: must be 1 to %d bytes, K and M are 2^10 and 2^20", text, maxSize)
	}
	return v * factor, nil
}

// check rejects invalid combinations.
func (o *options) check() error {
	if o.postList == 0 && o.lat {
		o.postList, o.cqMod = 1, 1
	}
	if o.verb != send {
		o.rxDepth = 1
	}
	if err := cmp.Or(
		inRange("iterations", o.iters, 5, maxIters),
		inRange("number of QPs", o.numQP, 1, maxQPs),
		inRange("tx depth", o.txDepth, 1, maxDepth),
		inRange("rx depth", o.rxDepth, 1, maxDepth),
		inRange("post list", o.postList, 1, o.txDepth),
		inRange("CQ moderation", o.cqMod, 1, 1024),
		inRange("outstanding reads", o.outReads, 0, 255),
		inRange("inline size", o.inline, 0, 1<<16),
		inRange("duration", o.duration, 0, maxDuration),
	); err != nil {
		return err
	}
	switch {
	case o.pathMTU != 0 && verbs.MTUOf(o.pathMTU) == 0:
		return fmt.Errorf("path MTU %d: must be 256, 512, 1024, 2048 or 4096", o.pathMTU)
	case o.typ == verbs.QPTypeUD && o.verb != send:
		return fmt.Errorf("UD supports only SEND")
	case o.typ == verbs.QPTypeUC && o.verb.waits():
		return fmt.Errorf("UC supports only SEND and WRITE")
	case o.cm && o.typ == verbs.QPTypeUC:
		return fmt.Errorf("rdma_cm does not connect UC")
	case o.tos >= 0 && !o.cm:
		return fmt.Errorf("-T needs -R")
	case o.lat && o.numQP > 1:
		return fmt.Errorf("latency tests use one QP: -q must be 1")
	case o.events && o.verb == write && o.lat:
		return fmt.Errorf("WRITE latency has no completions at the receiver, so it cannot use -e")
	case o.duration > 0 && o.all:
		return fmt.Errorf("-D cannot be combined with -a")
	case o.duration > 0 && o.events:
		return fmt.Errorf("-D cannot be combined with -e")
	case o.iters%o.postList != 0 && o.duration == 0:
		return fmt.Errorf("-n %d must be a multiple of -l %d", o.iters, o.postList)
	case o.plot != "" && chart.Format(o.plot) == "":
		return fmt.Errorf("--plot %s: the name must end in .svg or .png", o.plot)
	}
	if o.infinite {
		o.duration, o.margin = cmp.Or(o.duration, infiniteDuration), 0
	}
	if o.margin < 0 {
		o.margin = o.duration / 4
	}
	if o.duration > 0 && o.duration <= 2*o.margin {
		return fmt.Errorf("%d seconds with two margins of %d leave no time to measure", o.duration, o.margin)
	}
	return nil
}

// depend adjusts options to each other as the C program does.
func (o *options) depend(rxChosen, cqModChosen, sizeChosen bool) {
	o.srq = o.srq || o.xrc()
	o.mtuSize = o.typ == verbs.QPTypeUD && !sizeChosen && !o.all && !o.lat

	if o.duration == 0 {
		messages := o.iters // for which the receive queue has receives
		if o.srq {
			messages *= o.numQP
		}
		if !o.reliable() && o.verb == send && !rxChosen {
			o.rxDepth = min(messages, unreliable)
		}
		o.txDepth, o.rxDepth = min(o.txDepth, o.iters), min(o.rxDepth, messages)
	}
	if o.size > 8192 && o.typ != verbs.QPTypeUD && !o.all && !o.events && !cqModChosen {
		o.cqMod = 1
	}
	if o.postList > 1 {
		o.cqMod = o.postList
	}
	o.cqMod = min(o.cqMod, o.txDepth)
	if o.all {
		o.size = 1 << maxAll
	}
}

// sends and receives report what this end does during the test.
func (o *options) sends() bool    { return o.server != "" || o.duplex || o.lat && !o.verb.waits() }
func (o *options) receives() bool { return o.verb == send && (o.server == "" || o.duplex || o.lat) }

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }
