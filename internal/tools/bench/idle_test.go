package bench

import (
	"os"
	"runtime"
	"testing"

	"github.com/verbena-rdma/verbena/internal/tools/duo"
	"github.com/verbena-rdma/verbena/internal/tools/endpoint"
	_ "github.com/verbena-rdma/verbena/provider/soft"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == duo.Command {
		if duo.Serve(&endpoint.Second{}) != nil {
			os.Exit(1)
		}
		return
	}
	if os.Getenv("GORACE") == "" {
		os.Setenv("GORACE", "atexit_sleep_ms=0") // otherwise the second process sleeps 1 s when it ends
	}
	os.Exit(m.Run())
}

// Two connected programs that neither post nor poll use no processor. A shard that polls would use a core. Processor
// time does not depend on other work on the machine.
func TestIdleConnectionsUseNoProcessor(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the processor time of a process is not known on Windows")
	}
	for _, shm := range []string{"", "0"} {
		t.Setenv("VERBENA_SHM", shm)
		err := pair(endpoint.Options{QPs: 4, Depth: sendWindow, Bytes: 4096}, func(p *endpoint.Pair) error {
			cores, err := idleCores(p)
			if cores > 0.1 {
				t.Errorf("VERBENA_SHM=%q: %.2f cores", shm, cores)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
