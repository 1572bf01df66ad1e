package mem

import (
	"slices"
	"testing"
)

// A frame reaches every other port that has started, not checked by anyone, and none that is closed.
func TestFramesOfRawPorts(t *testing.T) {
	f := NewFabric(Config{})
	got := map[string][]string{}
	ports := map[string]interface {
		Start(receive func(frame []byte, verified bool))
		Send(frame []byte) error
		Close() error
		MTU() int
	}{}
	for _, name := range []string{"a", "b", "c", "idle"} {
		p, err := f.OpenRaw()
		if err != nil || p.MTU() != 9014 {
			t.Fatalf("%v, %d bytes", err, p.MTU())
		}
		if ports[name] = p; name == "idle" {
			continue
		}
		p.Start(func(frame []byte, verified bool) {
			if verified {
				t.Errorf("%s: %q is verified", name, frame)
			}
			got[name] = append(got[name], string(frame))
		})
	}
	send := func(name, frame string) {
		if err := ports[name].Send([]byte(frame)); err != nil {
			t.Error(err)
		}
	}
	send("a", "1")
	send("b", "2")
	f.InjectRaw([]byte("3"))
	if err := ports["b"].Close(); err != nil {
		t.Error(err)
	}
	send("idle", "4")
	for name, want := range map[string][]string{"a": {"2", "3", "4"}, "b": {"1", "3"}, "c": {"1", "2", "3", "4"}} {
		if !slices.Equal(got[name], want) {
			t.Errorf("%s received %q, want %q", name, got[name], want)
		}
	}
}
