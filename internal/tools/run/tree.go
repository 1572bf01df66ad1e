package run

import (
	"fmt"

	"github.com/verbena-rdma/verbena/internal/engine"
	"github.com/verbena-rdma/verbena/internal/iwtcp"
	"github.com/verbena-rdma/verbena/internal/tools/portrate"
	"github.com/verbena-rdma/verbena/verbs"
)

// A tree is what programs see at /sys: the text of each file by its path, and links by a path that ends with "@".
type tree map[string]string

// link marks the paths of symbolic links.
const link = "@"

// newTree returns an empty tree with what does not depend on devices.
func newTree() tree {
	return tree{"class/infiniband_verbs/abi_version": "6\n"}
}

// describe adds a device: the n-th, which libibverbs calls uverbsN.
func (t tree) describe(n int, d *verbs.Device) error {
	vctx, err := d.Open()
	if err != nil {
		return err
	}
	defer vctx.Close()
	a, err := vctx.QueryDevice()
	if err != nil {
		return err
	}
	uverbs := fmt.Sprintf("uverbs%d", n)
	t["class/infiniband_verbs/"+uverbs+"/ibdev"] = d.Name() + "\n"
	t["class/infiniband_verbs/"+uverbs+"/abi_version"] = "1\n"
	t["class/infiniband_verbs/"+uverbs+"/dev"] = fmt.Sprintf("231:%d\n", 192+n)
	t["class/infiniband_verbs/"+uverbs+"/device"+link] = "../../infiniband/" + d.Name() + "/device"
	// A character device that everybody may read and write: UCX asks for no more.
	t["dev/infiniband/"+uverbs+link] = "/dev/null"

	dir := "class/infiniband/" + d.Name() + "/"
	t[dir+"node_type"] = "1: CA\n"
	if d.NodeType() == verbs.NodeRNIC {
		t[dir+"node_type"] = "4: RNIC\n"
	}
	t[dir+"node_guid"] = a.NodeGUID.String() + "\n"
	t[dir+"sys_image_guid"] = a.SysImageGUID.String() + "\n"
	t[dir+"node_desc"] = "verbena\n"
	t[dir+"fw_ver"] = a.FWVer + "\n"
	t[dir+"hca_type"] = "verbena\n"
	t[dir+"device/numa_node"] = "-1\n"
	if d.Interface() != "" {
		t[dir+"device/net/"+d.Interface()+"/dev_id"] = "0x0\n"
	}
	for port := uint8(1); port <= a.PhysPortCnt; port++ {
		if err := t.port(vctx, dir, port); err != nil {
			return err
		}
	}
	return nil
}

// port adds a port of a device.
func (t tree) port(vctx *verbs.Context, dir string, port uint8) error {
	a, err := vctx.QueryPort(port)
	if err != nil {
		return err
	}
	dir = fmt.Sprintf("%sports/%d/", dir, port)
	t[dir+"state"] = fmt.Sprintf("%d: %s\n", a.State, portrate.State(a.State))
	t[dir+"phys_state"] = physState(a.PhysState) + "\n"
	t[dir+"rate"] = rate(&a) + "\n"
	t[dir+"link_layer"] = "Ethernet\n"
	t[dir+"cap_mask"] = fmt.Sprintf("%#08x\n", uint32(a.PortCapFlags))
	t[dir+"lid"], t[dir+"sm_lid"] = fmt.Sprintf("%#x\n", a.LID), fmt.Sprintf("%#x\n", a.SMLID)
	t[dir+"lid_mask_count"], t[dir+"sm_sl"] = fmt.Sprintf("%d\n", a.LMC), fmt.Sprintf("%d\n", a.SMSL)
	for _, c := range counterFiles(vctx.Device()) {
		t[dir+c.Name] = "0\n" // the library that is preloaded has the values
	}
	for i := range int(a.PKeyTblLen) {
		key, err := vctx.QueryPKey(port, i)
		if err != nil {
			return err
		}
		t[fmt.Sprintf("%spkeys/%d", dir, i)] = fmt.Sprintf("0x%04x\n", key)
	}
	entries, err := vctx.QueryGIDTable()
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Port != port {
			continue
		}
		t[fmt.Sprintf("%sgids/%d", dir, e.Index)] = e.GID.Hex() + "\n"
		t[fmt.Sprintf("%sgid_attrs/types/%d", dir, e.Index)] = gidType(e.Type) + "\n"
		t[fmt.Sprintf("%sgid_attrs/ndevs/%d", dir, e.Index)] = e.NetDev + "\n"
	}
	return nil
}

// counterFiles returns the counters of a port of a device.
func counterFiles(d *verbs.Device) []engine.Counter {
	if d.TransportType() == verbs.TransportIWARP {
		return new(iwtcp.Counters).Files()
	}
	return new(engine.Counters).Files()
}

// physState returns a physical state as the kernel writes it.
func physState(s verbs.PhysState) string {
	if s == verbs.PhysLinkUp {
		return "5: LinkUp"
	}
	return "3: Disabled"
}

// gidType returns the name of a type as the kernel writes it.
func gidType(t verbs.GIDType) string {
	if t == verbs.GIDTypeRoCEv2 {
		return "RoCE v2"
	}
	return "IB/RoCE v1"
}

// rate returns a port's speed as the kernel writes it.
func rate(a *verbs.PortAttr) string {
	gbps, lanes := portrate.Of(a)
	return fmt.Sprintf("%s Gb/sec (%dX)", gbps, lanes)
}

// makeTree writes the tree of this process's devices and returns its folder.
func makeTree() (string, error) {
	devices, err := verbs.Devices()
	if err != nil {
		return "", err
	}
	t := newTree()
	for i, d := range devices {
		if err := t.describe(i, d); err != nil {
			return "", err
		}
	}
	root, err := privateFolder()
	if err != nil {
		return "", err
	}
	return t.write(root)
}
