package engine

import (
	"testing"
	"testing/synctest"
	"time"
)

// The QPs of a peer that has ended fail only after programs had time to take the completions before.
func TestLostPeersFailAfterAGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := testEngine(t, 2, Config{Manual: true})
		if err := e.start(); err != nil {
			t.Fatal(err)
		}
		noted := func() (n int) {
			for _, s := range e.shards {
				if s.lost.Load() {
					n++
				}
			}
			return n
		}
		go e.notePeerLost()
		time.Sleep(lostGrace - time.Microsecond)
		synctest.Wait()
		if n := noted(); n != 0 {
			t.Errorf("%d shards fail QPs at once", n)
		}
		time.Sleep(time.Microsecond)
		synctest.Wait()
		if n := noted(); n != 2 {
			t.Errorf("%d of 2 shards know of it after %v", n, lostGrace)
		}
	})
}
