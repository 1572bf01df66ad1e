package cmtest

import "time"

// span is the time of a step.
type span struct{ begin, end time.Time }

func (s *span) start() { s.begin = time.Now() }

func (s *span) stop() { s.end = time.Now() }

func (s *span) us() uint64 {
	if s.begin.IsZero() || s.end.IsZero() {
		return 0
	}
	return uint64(s.end.Sub(s.begin).Microseconds())
}

// The steps; instances synchronize at some of them by their numbers.
const (
	meshWhole = iota
	meshCreateID
	meshBind
	meshResolveAddr
	meshResolveRoute
	meshCreateQP
	meshInitAttr
	meshInit
	meshRTRAttr
	meshRTR
	meshRTSAttr
	meshRTS
	meshConnect
	meshEstablish
	meshDisconnect
	meshDestroyID
	meshDestroyQP
	meshSteps
)

var meshNames = [meshSteps]string{"full connect", "create id", "bind addr", "resolve addr", "resolve route",
	"create qp", "init qp attr", "init qp", "rtr qp attr", "rtr qp", "rts qp attr", "rts qp", "cm connect", "establish",
	"disconnect", "destroy id", "destroy qp"}

// report prints the table, in microseconds.
func (m *mesh) report() {
	kind := map[bool]string{true: "qp_conn", false: "cm_conn"}[m.madeQ == 0]
	m.sayf("%s        %10d\nthreads        %10d", kind, len(m.conns), m.threads)
	m.sayf("step             avg/conn  total(us)    us/conn    sum(us)    max(us)    min(us)")
	n := uint64(len(m.conns))
	for step, name := range meshNames {
		var sum, most, least uint64
		first := true
		for _, c := range m.conns {
			s := &c.times[step]
			if s.begin.IsZero() || s.end.IsZero() {
				continue
			}
			t := s.us()
			sum, most = sum+t, max(most, t)
			if first || t < least {
				least, first = t, false
			}
		}
		if step == meshWhole { // the connections' times overlap
			sum = 0
		}
		all := m.total[step].us()
		m.sayf("%-13s  %10d %10d %10d %10d %10d %10d", name, all/n, all, sum/n, sum, most, least)
	}
}
