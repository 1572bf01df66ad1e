//go:build linux && (amd64 || arm64)

package hw

import "testing"

// A list of requests that is longer than those before leaves room for a request with the most SGEs.
func TestGrowKeepsRoomForOneRequest(t *testing.T) {
	const most = 200
	var s sendQueue
	s.init(0, &cQPCap{maxSendSGE: most}, 0)
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := 1; n <= maxRequests; n *= 2 {
		if s.grow(n); len(s.sges) < most || len(s.wrs) < min(n, maxRequests) {
			t.Fatalf("for %d requests: %d requests and %d SGEs, must be %d SGEs", n, len(s.wrs), len(s.sges), most)
		}
	}
}
