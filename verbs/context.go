package verbs

import (
	"net/netip"
	"os"
	"sync"
)

// Context is an open device (struct ibv_context). Everything else is made from it. It is safe for concurrent use.
type Context struct {
	dev     *Device
	drv     ContextDriver
	attr    DeviceAttr // never changes, as vectors
	vectors int
	life    life
	mu      sync.RWMutex // read-held by queries, so that Close waits for them
	async   *eventQueue[AsyncEvent]
	export  exportFile
}

// Open makes a context (ibv_open_device). A device may be opened any number of times. Asynchronous events queue from
// now on.
func (d *Device) Open() (*Context, error) {
	forkByEnvironment(os.Stderr)
	ctx := &Context{dev: d, async: newEventQueue[AsyncEvent]()}
	drv, err := d.drv.Open((*contextUpcalls)(ctx))
	if err != nil {
		return nil, driverError("open_device", d.Name(), err)
	}
	ctx.drv = drv
	if ctx.attr, err = drv.QueryDevice(); err != nil {
		_ = drv.Close()
		return nil, driverError("open_device", d.Name(), err)
	}
	ctx.vectors = max(1, drv.NumCompVectors())
	return ctx, nil
}

// Close closes the context (ibv_close_device). EBUSY while PDs, CQs, completion channels or DMs of it are left, which it
// then leaves as they are; the C function leaves such orphans behind. Goroutines that wait for asynchronous events
// get ErrClosed.
func (ctx *Context) Close() error {
	ctx.mu.Lock()
	defer ctx.mu.Unlock()
	if err := ctx.life.end("close_device", ctx.obj()); err != nil {
		return err
	}
	if err := ctx.drv.Close(); err != nil {
		ctx.life.revive()
		return driverError("close_device", ctx.obj(), err)
	}
	ctx.async.close()
	ctx.unexport()
	return nil
}

// Device is the device that was opened.
func (ctx *Context) Device() *Device { return ctx.dev }

// NumCompVectors is how many completion vectors there are, at least 1 (num_comp_vectors of struct ibv_context).
func (ctx *Context) NumCompVectors() int { return ctx.vectors }

func (ctx *Context) obj() string { return ctx.dev.Name() }

// enter keeps the context open until leave; ErrClosed if it is not.
func (ctx *Context) enter(op string) error {
	ctx.mu.RLock()
	if ctx.life.closed.Load() {
		ctx.mu.RUnlock()
		return errClosed(op, ctx.obj())
	}
	return nil
}

func (ctx *Context) leave() { ctx.mu.RUnlock() }

// QueryDevice describes the device (ibv_query_device). The values never change.
func (ctx *Context) QueryDevice() (DeviceAttr, error) {
	if err := ctx.enter("query_device"); err != nil {
		return DeviceAttr{}, err
	}
	defer ctx.leave()
	return ctx.attr, nil
}

// QueryPort describes a port, 1..PhysPortCnt (ibv_query_port). EINVAL if there is no such port.
func (ctx *Context) QueryPort(port uint8) (PortAttr, error) {
	if err := ctx.enter("query_port"); err != nil {
		return PortAttr{}, err
	}
	defer ctx.leave()
	return ctx.queryPort("query_port", port)
}

// queryPort is QueryPort for a caller who keeps the context open.
func (ctx *Context) queryPort(op string, port uint8) (PortAttr, error) {
	if err := ctx.checkPort(op, port); err != nil {
		return PortAttr{}, err
	}
	attr, err := ctx.drv.QueryPort(port)
	return attr, driverError(op, ctx.obj(), err)
}

func (ctx *Context) checkPort(op string, port uint8) error {
	if port < 1 || port > ctx.attr.PhysPortCnt {
		return newError(op, ctx.obj(), EINVAL, "port %d does not exist; ports are 1 to %d", port, ctx.attr.PhysPortCnt)
	}
	return nil
}

// QueryGID reads an entry of a port's GID table (ibv_query_gid). index is 0..GIDTblLen-1, else EINVAL. Empty entries
// are zero.
func (ctx *Context) QueryGID(port uint8, index int) (GID, error) {
	e, err := ctx.gidEntry("query_gid", port, index)
	return e.GID, err
}

// QueryGIDEntry is QueryGID with the entry's type and network interface (ibv_query_gid_ex). ENODATA if the entry is
// empty.
func (ctx *Context) QueryGIDEntry(port uint8, index int) (GIDEntry, error) {
	e, err := ctx.gidEntry("query_gid_ex", port, index)
	if err == nil && e.GID.IsZero() {
		err = newError("query_gid_ex", ctx.obj(), ENODATA, "entry %d of port %d is empty", index, port)
	}
	return e, err
}

func (ctx *Context) gidEntry(op string, port uint8, index int) (GIDEntry, error) {
	if err := ctx.enter(op); err != nil {
		return GIDEntry{}, err
	}
	defer ctx.leave()
	attr, err := ctx.queryPort(op, port)
	if err != nil {
		return GIDEntry{}, err
	}
	if index < 0 || index >= attr.GIDTblLen {
		return GIDEntry{}, newError(op, ctx.obj(), EINVAL, "index %d is outside the GID table; 0 to %d are allowed", index, attr.GIDTblLen-1)
	}
	table, err := ctx.gidTable(op, port)
	if err != nil || index >= len(table) {
		return GIDEntry{Index: index, Port: port}, err
	}
	return table[index], nil
}

// gidTable is the driver's table with Index and Port put right.
func (ctx *Context) gidTable(op string, port uint8) ([]GIDEntry, error) {
	table, err := ctx.drv.GIDTable(port)
	for i := range table {
		table[i].Index, table[i].Port = i, port
	}
	return table, driverError(op, ctx.obj(), err)
}

// QueryGIDTable lists the GID table entries of all ports that are not empty (ibv_query_gid_table).
func (ctx *Context) QueryGIDTable() ([]GIDEntry, error) {
	if err := ctx.enter("query_gid_table"); err != nil {
		return nil, err
	}
	defer ctx.leave()
	var all []GIDEntry
	for port := 1; port <= int(ctx.attr.PhysPortCnt); port++ {
		table, err := ctx.gidTable("query_gid_table", uint8(port))
		if err != nil {
			return nil, err
		}
		for _, e := range table {
			if !e.GID.IsZero() {
				all = append(all, e)
			}
		}
	}
	return all, nil
}

// SelectGID chooses the entry of port 1's GID table for traffic to a peer, and says why. No C function does this:
// programs there ask their user for an index.
func (ctx *Context) SelectGID(peer netip.Addr) (GIDChoice, error) {
	if err := ctx.enter("select_gid"); err != nil {
		return GIDChoice{}, err
	}
	defer ctx.leave()
	return ctx.selectGID(1, peer)
}

func (ctx *Context) selectGID(port uint8, peer netip.Addr) (GIDChoice, error) {
	if !peer.IsValid() {
		return GIDChoice{}, newError("select_gid", ctx.obj(), EINVAL, "the peer's address is empty")
	}
	choice, err := ctx.drv.SelectGID(port, peer)
	return choice, driverError("select_gid", ctx.obj(), err)
}

// QueryPKey reads an entry of a port's P_Key table (ibv_query_pkey), in host order: bit 15 tells full members from
// limited ones. index is 0..PKeyTblLen-1, else EINVAL.
func (ctx *Context) QueryPKey(port uint8, index int) (uint16, error) {
	table, err := ctx.pkeyTable("query_pkey", port)
	if err != nil {
		return 0, err
	}
	if index < 0 || index >= len(table) {
		return 0, newError("query_pkey", ctx.obj(), EINVAL, "index %d is outside the P_Key table; 0 to %d are allowed", index, len(table)-1)
	}
	return table[index], nil
}

// PKeyIndex finds a P_Key, given in host order, in a port's table (ibv_get_pkey_index). ENOENT if it is not there.
func (ctx *Context) PKeyIndex(port uint8, pkey uint16) (int, error) {
	table, err := ctx.pkeyTable("get_pkey_index", port)
	if err != nil {
		return -1, err
	}
	for i, p := range table {
		if p == pkey {
			return i, nil
		}
	}
	return -1, newError("get_pkey_index", ctx.obj(), ENOENT, "P_Key 0x%04x is not in the table of port %d", pkey, port)
}

func (ctx *Context) pkeyTable(op string, port uint8) ([]uint16, error) {
	if err := ctx.enter(op); err != nil {
		return nil, err
	}
	defer ctx.leave()
	if err := ctx.checkPort(op, port); err != nil {
		return nil, err
	}
	table, err := ctx.drv.PKeyTable(port)
	return table, driverError(op, ctx.obj(), err)
}
