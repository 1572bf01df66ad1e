package cm

import (
	"bytes"
	"strings"
	"testing"
)

// In every state the last will of a connection is the message that Destroy sends then, and there is none when Destroy
// sends none.
func TestLastWillIsTheMessageOfDestroy(t *testing.T) {
	for _, script := range []string{
		"connect i; in MRA about=req; in REP; in REP; establish i; disconnect i",
		"connect i; in REP; establish i; in DREQ qp=11; disconnect i; time 10s",
		"connect i; in REP; in REJ; time 10s",
		"connect i; in REJ about=req; time 1s",
		"connect i; time 200s",
		"connect i; in REP; establish i; load-path i; in DREQ qp=11; in DREQ qp=11",
		"listen l; in REQ as=i; in REQ; accept i qp=22; in MRA about=rep; in RTU; disconnect i; in DREP; time 10s",
		"listen l; in REQ as=i; delay i; accept i qp=22; notify i; in DREQ qp=22; destroy i",
		"listen l; in REQ as=i; reject i; time 200s",
		"listen l; in REQ retries=1 as=i; accept i qp=22; time 200s",
		"listen l; in REQ as=i; accept i qp=22; death qp=33 ours=22; time 10s",
	} {
		steps := strings.Split(script, "; ")
		for n := 1; n <= len(steps); n++ {
			s := newStage(t)
			s.m.cfg.LastWills = true
			var word []byte
			keep := func(id *ID, mad []byte) {
				if id == s.ids["i"] {
					word = bytes.Clone(mad)
				}
			}
			for _, step := range steps[:n] {
				words := strings.Fields(step)
				if err := s.do(words[0], parseArgs(words[1:])); err != nil {
					t.Fatalf("%s: %v", step, err)
				}
				before := s.m.Counters
				s.m.LastWills(keep)
				if s.m.Counters != before {
					t.Errorf("%q counts", step)
				}
			}
			id := s.ids["i"]
			if id == nil || id.destroyed {
				continue
			}
			after := strings.Join(steps[:n], "; ")
			state := id.state
			s.m.Destroy(s.now, id, &s.out)
			switch {
			case state == StateDREQSent: // the DREQ that is under way may be lost
				if word == nil {
					t.Errorf("%s: nothing is left in %v", after, state)
				}
			case len(s.out.Mail) == 0 && word != nil:
				t.Errorf("%s: %x is left in %v", after, word, state)
			case len(s.out.Mail) > 0 && !bytes.Equal(word, s.out.Mail[0].MAD[:]):
				t.Errorf("%s: in %v\n%x is left, and\n%x is sent", after, state, word, s.out.Mail[0].MAD)
			case word != nil && !bytes.Equal(word[96:], make([]byte, len(word)-96)):
				t.Errorf("%s: a word of more than 96 bytes in %v", after, state)
			}
			s.m.LastWills(keep)
			if word != nil {
				t.Errorf("%s: %x is left after Destroy", after, word)
			}
		}
	}
}
