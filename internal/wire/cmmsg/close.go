package cmmsg

// RTU confirms a reply: the connection may be used. Layout (byte: field and bits): 0: local communication ID 32; 4:
// remote communication ID 32; 8: private data, 224 bytes.
type RTU []byte

// LocalID and RemoteID are the communication IDs.
func (r RTU) LocalID() uint32  { return be.Uint32(r) }
func (r RTU) RemoteID() uint32 { return be.Uint32(r[4:]) }

// Private is the private data, 224 bytes.
func (r RTU) Private() []byte { return r[8:Len:Len] }

// Put writes everything but the private data.
func (r RTU) Put(local, remote uint32) { putIDs(r, local, remote) }

// DREQ asks to disconnect. Layout (byte: field and bits): 0: local communication ID 32; 4: remote communication ID
// 32; 8: QPN of the receiver 24; 11: reserved 8; 12: private data, 220 bytes.
type DREQ []byte

// LocalID and RemoteID are the communication IDs.
func (r DREQ) LocalID() uint32  { return be.Uint32(r) }
func (r DREQ) RemoteID() uint32 { return be.Uint32(r[4:]) }

// RemoteQPN is the receiver's QP, 24 bits. A receiver ignores a DREQ with another QPN.
func (r DREQ) RemoteQPN() uint32 { return uint24(r[8:]) }

// Private is the private data, 220 bytes.
func (r DREQ) Private() []byte { return r[12:Len:Len] }

// Put writes everything but the private data.
func (r DREQ) Put(local, remote, remoteQPN uint32) {
	putIDs(r, local, remote)
	be.PutUint32(r[8:], remoteQPN<<8)
}

// DREP answers a DREQ. Its layout is RTU's.
type DREP []byte

// LocalID and RemoteID are the communication IDs.
func (r DREP) LocalID() uint32  { return be.Uint32(r) }
func (r DREP) RemoteID() uint32 { return be.Uint32(r[4:]) }

// Private is the private data, 224 bytes.
func (r DREP) Private() []byte { return r[8:Len:Len] }

// Put writes everything but the private data.
func (r DREP) Put(local, remote uint32) { putIDs(r, local, remote) }
