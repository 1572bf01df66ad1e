// Guide is the program that docs/guide.md builds step by step. The server offers a page of its memory. The client
// writes a text there, reads it back, and sends a message.
//
//	guide              the server
//	guide HOST         the client
package main

import (
	"context"
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
	inbox    = 2048 // offset in the page of received messages
)

// An end has the RDMA objects of one side.
type end struct {
	vctx *verbs.Context
	pd   *verbs.PD
	mr   *verbs.MR
	cq   *verbs.CQ
	qp   *verbs.QP

	in  *json.Decoder // the TCP connection, for the exchange of addresses
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
			return fmt.Errorf("%w; the server must run there: start it first", err)
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

// open creates the objects.
func (e *end) open() (err error) {
	if e.vctx, err = verbs.Open(""); err != nil {
		return err
	}
	if e.pd, err = e.vctx.AllocPD(); err != nil {
		return err
	}
	access := verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead
	if e.mr, err = e.pd.RegMR(make([]byte, pageSize), access); err != nil {
		return err
	}
	if e.cq, err = e.vctx.CreateCQ(16, nil); err != nil {
		return err
	}
	e.qp, err = e.pd.CreateQP(&verbs.QPInitAttr{
		Type: verbs.QPTypeRC, SendCQ: e.cq, RecvCQ: e.cq,
		Cap: verbs.QPCap{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: 64},
	})
	return err
}

// close destroys the objects in the reverse order: an object in use cannot be closed.
func (e *end) close() error {
	return errors.Join(e.qp.Close(), e.cq.Close(), e.mr.Close(), e.pd.Close(), e.vctx.Close())
}

// A card has the addresses of one end.
type card struct {
	QP   verbs.QPInfo
	Addr uint64 // of the page
	RKey uint32
}

// connect exchanges cards with the other end and connects the queue pairs.
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

// swap sends a value to the other end and receives one from it.
func (e *end) swap(mine, theirs any) error {
	if err := e.out.Encode(mine); err != nil {
		return err
	}
	return e.in.Decode(theirs)
}

// wait waits until one request has completed.
func (e *end) wait() (verbs.WC, error) {
	var wcs [1]verbs.WC
	if _, err := e.cq.Wait(context.Background(), wcs[:]); err != nil {
		return wcs[0], err
	}
	return wcs[0], wcs[0].Err()
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

// serve is the server. WRITE and READ do not involve it; only the message does.
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
