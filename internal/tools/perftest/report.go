package perftest

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/verbs"
)

// bwReport is a bandwidth result: MB or Gb per second, and millions of messages per second.
type bwReport struct {
	size                int
	iters               uint64
	peak, average, rate float64
}

func (b *bwReport) add(o *bwReport) {
	b.peak += o.peak
	b.average += o.average
	b.rate += o.rate
}

// latReport is a latency result, in microseconds.
type latReport struct {
	size                 int
	iters                uint64
	least, most, typical float64
	average, deviation   float64
	p99, p999            float64
	duration             bool // only average and perSecond are set
	perSecond            float64
}

// result is one line of the table.
type result struct {
	bw  bwReport
	lat latReport
	cpu float64 // percent, with --cpu_util
}

const (
	line = "---------------------------------------------------------------------------------------\n"

	columnsBW  = " #bytes     #iterations    BW peak[%[1]s/sec]    BW average[%[1]s/sec]   MsgRate[Mpps]%[2]s\n"
	columnsLat = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    " +
		"t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] \n"
	columnsLatD = " #bytes        #iterations       t_avg[usec]    tps average%s\n"
	formatBW    = " %-7d    %-10d       %-7.2f            %-7.2f\t\t   %-7.6f"
	formatSmall = " %-7d    %d           %-7.6f            %-7.6f            %-7.6f"
	formatLat   = " %-7d %d          %-7.2f        %-7.2f      %-7.2f  \t       %-7.2f     " +
		"\t%-7.2f\t\t%-7.2f \t\t%-7.2f\n"
	formatLatD   = " %-7d       %d            %-7.2f        %-7.2f"
	smallAverage = 0.1 // Gb/sec; smaller results have more digits
)

func (r *run) unit() string {
	if r.gbits {
		return "Gb"
	}
	return "MB"
}

// addBW adds and prints a result. In bidirectional tests it is the sum of both ends. The C program chooses
// the number of digits by its own share.
func (r *run) addBW(own bwReport, theirs *bwReport) {
	b := own
	if theirs != nil {
		b.add(theirs)
	}
	r.keepResult(result{bw: b})
	r.printBW(&b, own.average)
	r.printBoth(&own, theirs)
}

// printBW prints a result. share decides about the number of digits.
func (r *run) printBW(b *bwReport, share float64) {
	format := formatBW
	if r.gbits && share < smallAverage {
		format = formatSmall
	}
	fmt.Fprintf(r.env.Stdout, format, b.size, b.iters, b.peak, b.average, b.rate)
	r.printCPU()
}

// keepResult adds a result to those of the run.
func (r *run) keepResult(x result) {
	if r.cpuUtil {
		x.cpu = processorTimes().since(r.cpuBefore)
	}
	if r.infinite && len(r.results) == keptResults {
		r.results = r.results[1:]
	}
	r.results = append(r.results, x)
	if r.output != "" {
		r.printNumber(&x)
	}
}

// keptResults bounds the results of --run_infinitely that are kept for the files.
const keptResults = 10000

// printCPU ends a line of the table.
func (r *run) printCPU() {
	if r.cpuUtil {
		fmt.Fprintf(r.env.Stdout, "\t    %-3.2f", r.results[len(r.results)-1].cpu)
	}
	fmt.Fprintln(r.env.Stdout)
}

func (r *run) addLat(l latReport) {
	r.keepResult(result{lat: l})
	if l.duration {
		fmt.Fprintf(r.env.Stdout, formatLatD, l.size, l.iters, l.average, l.perSecond)
		r.printCPU()
		return
	}
	fmt.Fprintf(r.env.Stdout, formatLat, l.size, l.iters, l.least, l.most, l.typical, l.average, l.deviation, l.p99,
		l.p999)
}

// printHead prints the parameters of the test.
func (r *run) printHead() {
	w := r.env.Stdout
	onOff := map[bool]string{false: "OFF", true: "ON"}
	fmt.Fprint(w, line, "                    ", r.verb.heading(), " ")
	if r.verb == atomic {
		fmt.Fprint(w, map[bool]string{false: "FETCH_AND_ADD ", true: "CMP_AND_SWAP "}[r.cmpSwap])
	}
	switch {
	case r.lat:
		fmt.Fprint(w, "Latency ")
	default:
		if r.duplex {
			fmt.Fprint(w, "Bidirectional ")
		}
		if r.postList > 1 {
			fmt.Fprint(w, "Post List ")
		}
		fmt.Fprint(w, "BW ")
	}
	fmt.Fprintln(w, "Test")
	if r.events {
		fmt.Fprintf(w, " Test with events. Using %s_comp0\n", r.ctx.Device().Name())
	}
	fmt.Fprintf(w, " Dual-port       : OFF\t\tDevice         : %s\n", r.ctx.Device().Name())
	fmt.Fprintf(w, " Number of qps   : %d\t\tTransport type : IB\n", r.qpCount())
	fmt.Fprintf(w, " Connection type : %s\t\tUsing SRQ      : %s\n", connectionName(r.typ), onOff[r.srq])
	fmt.Fprint(w, " PCIe relax order: OFF\n ibv_wr* API     : OFF\n")
	if r.server != "" || r.duplex {
		fmt.Fprintf(w, " TX depth        : %d\n", r.txDepth)
	}
	if r.postList > 1 {
		fmt.Fprintf(w, " Post List       : %d\n", r.postList)
	}
	if r.verb == send && (r.server == "" || r.duplex) {
		fmt.Fprintf(w, " RX depth        : %d\n", r.rxDepth)
	}
	if !r.lat {
		fmt.Fprintf(w, " CQ Moderation   : %d\n", r.cqMod)
	}
	fmt.Fprintf(w, " Mtu             : %d[B]\n Link type       : Ethernet\n GID index       : %d\n", r.mtu.Bytes(), r.sgid)
	if r.verb.waits() {
		fmt.Fprintf(w, " Outstand reads  : %d\n", r.outs)
	} else {
		fmt.Fprintf(w, " Max inline data : %d[B]\n", r.inline)
	}
	fmt.Fprintf(w, " rdma_cm QPs\t : %s\n Data ex. method : %s", onOff[r.cm],
		map[bool]string{false: "Ethernet", true: "rdma_cm"}[r.cm || r.cmData])
	if r.tos >= 0 {
		fmt.Fprintf(w, " \tTOS    : %d", r.tos)
	}
	fmt.Fprint(w, "\n", line)
}

func connectionName(t verbs.QPType) string {
	return map[verbs.QPType]string{
		verbs.QPTypeRC: "RC", verbs.QPTypeUC: "UC", verbs.QPTypeUD: "UD", verbs.QPTypeXRCSend: "XRC",
	}[t]
}

// printAddress prints a QP's address as the C program does: the GID in decimal, and with -R no memory.
func (r *run) printAddress(side string, d *dest) {
	w := r.env.Stdout
	fmt.Fprintf(w, " %s address: LID %s QPN %s PSN %s", side, hex(uint64(d.lid), 4), hex(uint64(d.qpn), 6),
		hex(uint64(d.psn), 6))
	if r.verb == read && !r.cm {
		fmt.Fprintf(w, " OUT %s", hex(uint64(d.outReads), 4))
	}
	if !r.cm && (r.verb == read || r.verb == write) {
		fmt.Fprintf(w, " RKey %s VAddr %s", hex(uint64(d.rkey), 8), hex(d.vaddr, 16))
	}
	if r.xrc() {
		fmt.Fprintf(w, " SRQn %s", hex(uint64(d.srqn), 8))
	}
	var gid []string
	for _, b := range d.gid {
		gid = append(gid, fmt.Sprintf("%02d", b))
	}
	fmt.Fprintf(w, "\n GID: %s\n", strings.Join(gid, ":"))
}

// hex formats as C's %#0*x does: the width includes the 0x, which a 0 does not have.
func hex(v uint64, width int) string {
	if v == 0 {
		return strings.Repeat("0", width)
	}
	return fmt.Sprintf("0x%0*x", width-2, v)
}

func (r *run) printColumns() {
	fmt.Fprint(r.env.Stdout, line)
	cpu := ""
	if r.cpuUtil {
		cpu = "    CPU_Util[%]"
	}
	switch {
	case r.lat && r.verb.waits() && r.server == "":
		// the client has the results
	case r.lat && r.duration > 0:
		fmt.Fprintf(r.env.Stdout, columnsLatD, cpu)
	case r.lat:
		fmt.Fprint(r.env.Stdout, columnsLat)
	default:
		fmt.Fprintf(r.env.Stdout, columnsBW, r.unit(), cpu)
	}
}

// jsonReport is the output of --json.
type jsonReport struct {
	Test       string       `json:"test"`
	Device     string       `json:"device"`
	Peer       string       `json:"peer"`
	Connection string       `json:"connection"`
	QPs        int          `json:"qps"`
	MTU        int          `json:"mtu"`
	RDMACM     bool         `json:"rdma_cm"`
	Unit       string       `json:"unit"`
	Results    []jsonResult `json:"results"`
}

type jsonResult struct {
	Size       int      `json:"size"`
	Iterations uint64   `json:"iterations"`
	Peak       *float64 `json:"bw_peak,omitempty"`
	Average    *float64 `json:"bw_average,omitempty"`
	MsgRate    *float64 `json:"msg_rate_mpps,omitempty"`
	Min        *float64 `json:"t_min,omitempty"`
	Max        *float64 `json:"t_max,omitempty"`
	Typical    *float64 `json:"t_typical,omitempty"`
	Avg        *float64 `json:"t_avg,omitempty"`
	Stdev      *float64 `json:"t_stdev,omitempty"`
	P99        *float64 `json:"t_p99,omitempty"`
	P999       *float64 `json:"t_p99_9,omitempty"`
	TPS        *float64 `json:"tps,omitempty"`
}

func (r *run) json() jsonReport {
	j := jsonReport{
		Test: r.name, Device: r.ctx.Device().Name(), Peer: r.peer.peer().String(), Connection: connectionName(r.typ),
		QPs: r.numQP, MTU: r.mtu.Bytes(), RDMACM: r.cm, Unit: r.unit() + "/sec", Results: []jsonResult{},
	}
	if r.lat {
		j.Unit = "usec"
	}
	for i := range r.results {
		b, l := &r.results[i].bw, &r.results[i].lat
		switch {
		case !r.lat:
			j.Results = append(j.Results, jsonResult{Size: b.size, Iterations: b.iters, Peak: &b.peak, Average: &b.average,
				MsgRate: &b.rate})
		case l.duration:
			j.Results = append(j.Results, jsonResult{Size: l.size, Iterations: l.iters, Avg: &l.average, TPS: &l.perSecond})
		default:
			j.Results = append(j.Results, jsonResult{
				Size: l.size, Iterations: l.iters, Min: &l.least, Max: &l.most, Typical: &l.typical, Avg: &l.average,
				Stdev: &l.deviation, P99: &l.p99, P999: &l.p999,
			})
		}
	}
	return j
}

// save writes the files of --json and --plot.
func (r *run) save() error {
	if r.options.json != "" {
		b, err := json.MarshalIndent(r.json(), "", "  ")
		if err != nil {
			return err
		}
		b = append(b, '\n')
		if r.options.json == "-" {
			_, err = r.stdout.Write(b)
		} else {
			err = os.WriteFile(r.options.json, b, 0o644)
		}
		if err != nil {
			return err
		}
	}
	if err := r.writeC(); err != nil {
		return err
	}
	if r.options.plot != "" && len(r.results) > 0 {
		return r.draw(r.options.plot)
	}
	return nil
}

// checkFiles returns an error if the files of --json or --plot cannot be written. It is called before the
// test.
func (r *run) checkFiles() error {
	for _, name := range []string{r.options.json, r.plot, map[bool]string{true: r.outJSONFile}[r.outJSON]} {
		if name == "" || name == "-" {
			continue
		}
		if err := tool.Writable(name); err != nil {
			return err
		}
	}
	return nil
}
