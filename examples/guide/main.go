// Guide is the program that docs/guide.md builds step by step. The server lends a page of its memory; the client writes a text there, reads
// it back, and then sends a message that it has done so.
//
//	guide              the server
//	guide HOST         the client
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	_ "github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

const (
	tcpPort  = "19876"
	pageSize = 4096
	inbox    = 2048 // from here on the page is for messages that are received
)

// An end has the objects of one side.
type end struct {
	ctx *verbs.Context
	pd  *verbs.PD
	mr  *verbs.MR
	cq  *verbs.CQ
	qp  *verbs.QP

	in  *json.Decoder // the TCP connection, for what must be known before RDMA works
	out *json.Encoder
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "guide:", err)
		os.Exit(1)
	}
}

func run(args []string, w io.Writer) error {
	if len(args) > 0 {
		conn, err := net.Dial("tcp", net.JoinHostPort(args[0], tcpPort))
		if err != nil {
			return err
		}
		return ask(conn, w)
	}
	l, err := net.Listen("tcp", ":"+tcpPort)
	if err != nil {
		return err
	}
	defer l.Close()
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	return serve(conn, w)
}

// open makes the objects, each one from one before.
func (e *end) open() (err error) {
	if e.ctx, err = verbs.Open(""); err != nil {
		return err
	}
	if e.pd, err = e.ctx.AllocPD(); err != nil {
		return err
	}
	access := verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead
	if e.mr, err = e.pd.RegMR(make([]byte, pageSize), access); err != nil {
		return err
	}
	if e.cq, err = e.ctx.CreateCQ(16, nil); err != nil {
		return err
	}
	e.qp, err = e.pd.CreateQP(&verbs.QPInitAttr{
		Type: verbs.QPTypeRC, SendCQ: e.cq, RecvCQ: e.cq,
		Cap: verbs.QPCap{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: 64},
	})
	return err
}

// close destroys them in the reverse order: an object with users refuses.
func (e *end) close() error {
	return errors.Join(e.qp.Close(), e.cq.Close(), e.mr.Close(), e.pd.Close(), e.ctx.Close())
}

// A card is what the other end must know of this one.
type card struct {
	QP   verbs.QPInfo
	Addr uint64 // of the page
	RKey uint32
}

// connect swaps cards with the other end and connects the queue pairs.
func (e *end) connect(conn net.Conn) (peer card, err error) {
	e.in, e.out = json.NewDecoder(conn), json.NewEncoder(conn)
	info, err := e.qp.LocalInfo()
	if err != nil {
		return peer, err
	}
	if err := e.swap(card{info, e.mr.Addr(), e.mr.RKey()}, &peer); err != nil {
		return peer, err
	}
	if err := e.qp.Connect(peer.QP, nil); err != nil {
		return peer, err
	}
	if err := e.qp.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{e.mr.SGE(inbox, pageSize-inbox)}}); err != nil {
		return peer, err
	}
	return peer, e.swap("ready", new(string))
}

// swap tells the other end something and waits for what it tells us.
func (e *end) swap(mine, theirs any) error {
	if err := e.out.Encode(mine); err != nil {
		return err
	}
	return e.in.Decode(theirs)
}

// wait polls until one request has completed.
func (e *end) wait() (verbs.WC, error) {
	var wcs [1]verbs.WC
	for {
		n, err := e.cq.Poll(wcs[:])
		if err != nil {
			return wcs[0], err
		}
		if n == 1 {
			return wcs[0], wcs[0].Err()
		}
	}
}

// do posts a request and waits for its completion.
func (e *end) do(wr verbs.SendWR) error {
	wr.Flags |= verbs.SendSignaled
	if err := e.qp.PostSend(wr); err != nil {
		return err
	}
	_, err := e.wait()
	return err
}

// ask is the client.
func ask(conn net.Conn, w io.Writer) error {
	defer conn.Close()
	var e end
	if err := e.open(); err != nil {
		return err
	}
	peer, err := e.connect(conn)
	if err != nil {
		return err
	}
	n := copy(e.mr.Bytes(), "written from afar")
	err = e.do(verbs.SendWR{
		Opcode: verbs.WRRDMAWrite, SGList: []verbs.SGE{e.mr.SGE(0, n)}, // from here
		RemoteAddr: peer.Addr, RKey: peer.RKey, // to there
	})
	if err != nil {
		return err
	}
	err = e.do(verbs.SendWR{
		Opcode: verbs.WRRDMARead, SGList: []verbs.SGE{e.mr.SGE(n, n)}, // to here
		RemoteAddr: peer.Addr, RKey: peer.RKey, // from there
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "read back: %q\n", e.mr.Bytes()[n:2*n])
	err = e.do(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline, Inline: []byte("look at your page")})
	return errors.Join(err, e.close())
}

// serve is the server. It takes no part in the WRITE and the READ.
func serve(conn net.Conn, w io.Writer) error {
	defer conn.Close()
	var e end
	if err := e.open(); err != nil {
		return err
	}
	if _, err := e.connect(conn); err != nil {
		return err
	}
	wc, err := e.wait()
	if err != nil {
		return err
	}
	page := e.mr.Bytes()
	fmt.Fprintf(w, "message: %q; the page begins with %q\n", page[inbox:inbox+wc.ByteLen], page[:17])
	return e.close()
}
