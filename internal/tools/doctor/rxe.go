package doctor

import (
	"os"
	"path/filepath"
	"strings"
)

// kernel reports the devices of the kernel's soft-RoCE, from the folder of the kernel's RDMA devices.
func (r *report) kernel(dir string) {
	parents, _ := filepath.Glob(dir + "/*/parent") // only rxe has that file
	for _, p := range parents {
		name := filepath.Base(filepath.Dir(p))
		on, _ := os.ReadFile(p)
		r.add(note, "device "+name, "is the kernel's soft-RoCE, on "+strings.TrimSpace(string(on))+
			": it occupies UDP port 4791 on every address of this network namespace", "rdma link delete "+name+
			"; modprobe -r rdma_rxe")
	}
}
