package verbs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// kernelDevices is where Linux lists the devices that programs may drive, each with its name in the file ibdev.
var kernelDevices = "/sys/class/infiniband_verbs"

// warnUndriven writes a line for each device of the kernel that no provider has, if the environment variable
// IBV_SHOW_WARNINGS asks for it, with whatever value.
func warnUndriven(w io.Writer, devices []*Device) {
	if !isSet("IBV_SHOW_WARNINGS") {
		return
	}
	files, _ := filepath.Glob(filepath.Join(kernelDevices, "*", "ibdev"))
	for _, f := range files {
		text, err := os.ReadFile(f)
		name := strings.TrimSpace(string(text))
		if err != nil || name == "" {
			continue
		}
		if !slices.ContainsFunc(devices, func(d *Device) bool { return d.Name() == name }) {
			fmt.Fprintf(w, "libibverbs: Warning: no userspace device-specific driver found for %s\n", name)
		}
	}
}

// destroyed is the answer of a driver that was asked to destroy something. With the environment variable
// RDMAV_ALLOW_DISASSOC_DESTROY, whatever its value, EIO counts as success: the device is gone, and the object with it.
// rdma-core takes the value 0 as not set.
func destroyed(err error) error {
	if errors.Is(err, syscall.EIO) && isSet("RDMAV_ALLOW_DISASSOC_DESTROY") {
		return nil
	}
	return err
}
