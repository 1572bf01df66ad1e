package perftest

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/verbs"
)

// extras are options that change how a test is reported or connected, not what it measures.
type extras struct {
	cmData      bool    // exchange over rdma_cm, but connect the QPs without it
	tclass      int     // below 0: 0
	outJSON     bool    // the C program's report
	outJSONFile string  //
	output      string  // print only this number
	cpuUtil     bool    // report the use of processors
	infinite    bool    // until Ctrl-C
	version     bool    //
	srq         bool    // SEND: receives are shared
	both        bool    // -b: report both directions too
	limitBW     float64 // 0: none
	limitRate   float64 // 0: none
}

// infiniteDuration is the time in seconds between two results of --run_infinitely without -D.
const infiniteDuration = 5

// define adds the options to f.
func (x *extras) define(t *test, f *tool.Flags) {
	f.BoolVarP(&x.cmData, "com_rdma_cm", "z", false, "exchange over rdma_cm, but connect the QPs without it")
	f.IntVar(&x.tclass, "tclass", -1, "traffic class of the packets, 0 to 255; below 0: 0")
	f.BoolVar(&x.outJSON, "out_json", false, "write the results to the file of --out_json_file, as JSON")
	f.StringVar(&x.outJSONFile, "out_json_file", "perftest_out.json", "file of --out_json")
	f.StringVar(&x.output, "output", "", "print only one number: bandwidth, message_rate or latency (the average)")
	f.BoolVar(&x.cpuUtil, "cpu_util", false, "report the use of this host's processors too; with -D")
	f.BoolVarP(&x.version, "version", "V", false, "print the version of perftest whose exchange this program has")
	if t.verb == send {
		f.BoolVar(&x.srq, "use-srq", false, "use a shared receive queue, of the size of -r")
	}
	if !t.lat {
		f.BoolVar(&x.infinite, "run_infinitely", false, "run until interrupted; a result every -D seconds (default 5)")
		f.BoolVar(&x.both, "report-both", false, "with -b, report the two directions separately too")
		f.Float64VarP(&x.limitBW, "limit_bw", "w", 0, "fail if the average bandwidth is below this")
		f.Float64VarP(&x.limitRate, "limit_msgrate", "y", 0, "fail if the message rate is below this, in millions/sec")
	}
}

// checkExtras rejects invalid combinations.
func (o *options) checkExtras(changed func(name string) bool) error {
	x := &o.extras
	if changed("tclass") {
		if err := inRange("traffic class", x.tclass, 0, 255); err != nil {
			return err
		}
	}
	units := map[bool][]string{false: {"bandwidth", "message_rate"}, true: {"latency"}}[o.lat]
	bad := func(limit float64) bool { return limit < 0 || math.IsNaN(limit) || math.IsInf(limit, 0) }
	switch {
	case o.cm && o.xrc():
		return errors.New("rdma_cm does not connect XRC here; -z exchanges over it")
	case x.cmData && o.cm:
		return errors.New("-z connects the QPs without rdma_cm, -R with it: choose one of them")
	case x.output != "" && !slices.Contains(units, x.output):
		return fmt.Errorf("--output %q: must be %s", x.output, strings.Join(units, " or "))
	case x.cpuUtil && o.duration == 0:
		return errors.New("--cpu_util needs -D")
	case x.cpuUtil && processorTimes() == (times{}):
		return errors.New("--cpu_util needs /proc/stat, which this system does not have")
	case x.both && !o.duplex:
		return errors.New("--report-both needs -b")
	case x.infinite && o.duplex && o.verb == send:
		return errors.New("--run_infinitely cannot be combined with -b for SEND")
	case x.infinite && (o.all || o.events):
		return errors.New("--run_infinitely cannot be combined with -a or -e")
	case x.srq && o.typ == verbs.QPTypeUC:
		return errors.New("--use-srq needs RC or UD: UC has no shared receive queue")
	case x.srq && o.rxDepth < o.numQP:
		return fmt.Errorf("--use-srq with %d QPs needs -r %d or more", o.numQP, o.numQP)
	case o.xrc() && o.verb == send && o.rxDepth < o.numQP:
		return fmt.Errorf("XRC with %d QPs needs -r %d or more: they share the receives", o.numQP, o.numQP)
	case bad(x.limitBW), bad(x.limitRate):
		return errors.New("a limit must be a number from 0 on")
	}
	return nil
}

// times are the times of all processors since the system's start, in ticks.
type times struct{ busy, all uint64 }

// processorTimes reads the times; both are 0 where there is no /proc/stat.
func processorTimes() (t times) {
	b, _ := os.ReadFile("/proc/stat")
	first, _, _ := strings.Cut(string(b), "\n")
	fields := strings.Fields(first)
	if len(fields) < 5 || fields[0] != "cpu" {
		return times{}
	}
	for i, f := range fields[1:min(len(fields), 9)] { // guests' times are counted as user time too
		n, err := strconv.ParseUint(f, 10, 64)
		if err != nil {
			return times{}
		}
		t.all += n
		if i != 3 && i != 4 { // idle, and idle while waiting for a disk
			t.busy += n
		}
	}
	return t
}

// since returns the use of processors since an earlier time, in percent.
func (t times) since(before times) float64 {
	if t.all <= before.all {
		return 0
	}
	return 100 * float64(t.busy-before.busy) / float64(t.all-before.all)
}

// noteLimits notes that the last result is below a limit, which lets the run fail at its end. Only an end that measures
// does so.
func (r *run) noteLimits() {
	if len(r.results) == 0 || r.server == "" && !r.duplex {
		return
	}
	b := &r.results[len(r.results)-1].bw
	switch {
	case b.average < r.limitBW:
		r.belowLimit = fmt.Errorf("the bandwidth %.2f %s/sec is below the limit of -w, %.2f", b.average, r.unit(), r.limitBW)
	case b.rate < r.limitRate:
		r.belowLimit = fmt.Errorf("the message rate %f Mpps is below the limit of -y, %f", b.rate, r.limitRate)
	}
}

// printNumber prints the number of --output.
func (r *run) printNumber(x *result) {
	n := x.lat.average
	switch r.output {
	case "bandwidth":
		n = x.bw.average
	case "message_rate":
		n = x.bw.rate
	}
	fmt.Fprintf(r.stdout, "%f\n", n)
}

// printBoth prints the results of both directions.
func (r *run) printBoth(own, theirs *bwReport) {
	if !r.both || theirs == nil {
		return
	}
	for _, side := range []struct {
		name string
		b    *bwReport
	}{{"Local", own}, {"Remote", theirs}} {
		fmt.Fprintf(r.env.Stdout, "%s\n %s results: \n", line, side.name)
		r.printColumns()
		r.printBW(side.b, own.average)
	}
}

// cReport is the report of --out_json, with the names that the C program gives. The C program's file is not valid
// JSON: strings lack quotation marks, and lists end in a comma.
type cReport struct {
	Info    map[string]any `json:"test_info"`
	Results any            `json:"results"` // an object; of -a and --run_infinitely a list
}

func (r *run) cReport() cReport {
	onOff := map[bool]string{false: "OFF", true: "ON"}
	kind := map[bool]string{false: "BW_Test", true: "Latency_Test"}[r.lat]
	if r.duplex {
		kind = "Bidirectional_" + kind
	}
	info := map[string]any{
		"test": r.verb.heading() + "_" + kind, "Dual_port": "OFF", "Device": r.ctx.Device().Name(),
		"Number_of_qps": r.qpCount(), "Transport_type": "IB", "Connection_type": connectionName(r.typ),
		"Using_SRQ":        onOff[r.srq],
		"PCIe_relax_order": "OFF", "ibv_wr_API": "OFF", "TX_depth": r.txDepth, "Mtu": r.mtu.Bytes(), "Link_type": "Ethernet",
		"GID_index": r.sgid, "Max_inline_data": r.inline, "rdma_cm_QPs": onOff[r.cm],
		"Data_ex_method": map[bool]string{false: "Ethernet", true: "rdma_cm"}[r.cm || r.cmData],
	}
	if r.verb.waits() {
		delete(info, "Max_inline_data")
		info["Outstand_reads"] = r.outs
	}
	if !r.lat {
		info["CQ_Moderation"] = r.cqMod
	}
	if r.verb == send {
		info["RX_depth"] = r.rxDepth
	}
	list := []map[string]any{}
	for i := range r.results {
		list = append(list, r.cResult(&r.results[i]))
	}
	if len(list) == 1 {
		return cReport{info, list[0]}
	}
	return cReport{info, list}
}

// cResult is one result of the report.
func (r *run) cResult(x *result) map[string]any {
	b, l := &x.bw, &x.lat
	m := map[string]any{"MsgSize": b.size + l.size, "n_iterations": b.iters + l.iters}
	switch {
	case !r.lat:
		m["BW_peak"], m["BW_average"], m["MsgRate"] = b.peak, b.average, b.rate
	case l.duration:
		m["t_avg"], m["tps_average"] = l.average, l.perSecond
	default:
		m["t_min"], m["t_max"], m["t_typical"], m["t_avg"], m["t_stdev"] = l.least, l.most, l.typical, l.average, l.deviation
		m["percentile_99"], m["percentile_99.9"] = l.p99, l.p999
	}
	if r.cpuUtil {
		m["CPU_util"] = x.cpu
	}
	return m
}

// writeC writes the report of --out_json.
func (r *run) writeC() error {
	if !r.outJSON {
		return nil
	}
	b, err := json.MarshalIndent(r.cReport(), "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(r.outJSONFile, append(b, '\n'), 0o644)
}

// makeSRQ creates the queue of --use-srq and XRC.
func (r *run) makeSRQ() (err error) {
	if !r.srq {
		return nil
	}
	init := verbs.SRQInitAttr{Attr: verbs.SRQAttr{MaxWR: uint32(r.rxDepth), MaxSGE: 1}}
	if r.xrc() {
		if err := r.xrcSRQ(&init); err != nil {
			return err
		}
	}
	r.shared, err = r.pd.CreateSRQ(&init)
	if err == nil {
		r.opened(r.shared.Close)
	}
	return err
}

// postRecv posts QP i's receive, to the QP or to the shared queue.
func (r *run) postRecv(e *end) error {
	post := e.qp.PostRecv
	if r.shared != nil {
		post = r.shared.PostRecv
	}
	err := post(e.recv[:]...)
	if err == nil {
		e.queued++
	}
	return err
}

// recvShare is the number of receives for each QP: all of them have the shared queue together.
func (r *run) recvShare() int {
	if r.shared != nil {
		return r.rxDepth / r.numQP
	}
	return r.rxDepth
}

// trafficClass is that of --tclass.
func (o *options) trafficClass() uint8 { return uint8(max(o.tclass, 0)) }
