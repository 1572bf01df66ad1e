package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Adapters returns the file of the machine's libibverbs, or why there are no adapters. Programs that import provider/hw
// set it; it is nil in others.
var Adapters func() (library string, err error)

// adapters reports whether this program can use the kernel's RDMA devices, which are in the folder class; their files
// are in the folder dev.
func (r *report) adapters(class, dev string) {
	const what = "adapters"
	paths, _ := filepath.Glob(filepath.Join(class, "*"))
	names := make([]string, 0, len(paths))
	for _, p := range paths {
		names = append(names, filepath.Base(p))
	}
	known := "the kernel has " + strings.Join(names, ", ")
	switch {
	case Adapters == nil && len(names) > 0:
		r.add(note, what, known+"; this binary has only the software device", "make build-hw, and use bin/verbena-hw")
		return
	case Adapters == nil:
		return
	}
	library, err := Adapters()
	switch {
	case err != nil && len(names) > 0:
		r.add(bad, what, known+", but "+err.Error(), "")
		return
	case err != nil:
		r.add(note, what, err.Error(), "")
		return
	}
	r.add(good, what, fmt.Sprintf("%s, by %s", known, library), "")
	files, _ := filepath.Glob(filepath.Join(dev, "uverbs*"))
	for _, f := range files {
		file, err := os.OpenFile(f, os.O_RDWR, 0)
		if err != nil {
			r.add(bad, what, err.Error(), "add the user to the group of "+f+", or give the container the device")
			continue
		}
		file.Close()
	}
	if limit, ok := lockedMemory(); ok {
		r.add(note, what, fmt.Sprintf("regions may lock %d KiB of memory (RLIMIT_MEMLOCK)", limit>>10),
			"ulimit -l unlimited; LimitMEMLOCK=infinity in a unit of systemd")
	}
}
