// The AWS SDK for JavaScript v3 against one endpoint: buffers, streams, listing, multipart,
// presigned URLs. Usage: node check.mjs URL BUCKET ACCESS_KEY SECRET_KEY
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { Readable } from "node:stream";
import {
  AbortMultipartUploadCommand, CopyObjectCommand, CreateMultipartUploadCommand,
  DeleteObjectCommand, DeleteObjectsCommand, GetObjectCommand, HeadObjectCommand,
  ListObjectsV2Command, ListPartsCommand, PutObjectCommand, S3Client, UploadPartCommand,
  paginateListObjectsV2,
} from "@aws-sdk/client-s3";
import { Upload } from "@aws-sdk/lib-storage";
import { getSignedUrl } from "@aws-sdk/s3-request-presigner";

const [endpoint, Bucket, accessKeyId, secretAccessKey] = process.argv.slice(2);
const client = new S3Client({
  endpoint, region: "us-east-1", forcePathStyle: true, maxAttempts: 1,
  credentials: { accessKeyId, secretAccessKey },
});
const send = (Command, input) => client.send(new Command({ Bucket, ...input }));
const MIB = 1 << 20;

function bytes(size) {
  const block = createHash("shake128", { outputLength: 65521 }).update("js").digest();
  return Buffer.alloc(size, block);
}

async function body(Key, extra = {}) {
  const got = await send(GetObjectCommand, { Key, ...extra });
  return Buffer.from(await got.Body.transformToByteArray());
}

async function putAndGet() {
  for (const size of [0, 5, MIB + 1, 5 * MIB]) {
    const data = bytes(size);
    await send(PutObjectCommand, { Key: "buffer", Body: data, Metadata: { colour: "blue" } });
    assert.deepEqual(await body("buffer"), data);
    const head = await send(HeadObjectCommand, { Key: "buffer" });
    assert.equal(head.ContentLength, size);
    assert.equal(head.Metadata.colour, "blue");
  }
}

// A stream goes as aws-chunked with a trailer, one small chunk per buffer.
async function streams() {
  const pieces = Array.from({ length: 300 }, (_, n) => Buffer.from(`piece ${n};`));
  const whole = Buffer.concat(pieces);
  await send(PutObjectCommand, {
    Key: "stream", Body: Readable.from(pieces), ContentLength: whole.length,
  });
  assert.deepEqual(await body("stream"), whole);
  assert.deepEqual(await body("stream", { Range: "bytes=3-9" }), whole.subarray(3, 10));
}

const AWKWARD = ["with space", "plus+", "per%cent", "a//b", "up/../x", "grüße/世界", "q?a=b&c#d", "📦"];

async function keys() {
  for (const Key of AWKWARD) {
    await send(PutObjectCommand, { Key: `k/${Key}`, Body: Key });
    assert.equal((await body(`k/${Key}`)).toString(), Key);
  }
  const found = [];
  for await (const page of paginateListObjectsV2({ client, pageSize: 3 }, { Bucket, Prefix: "k/" })) {
    found.push(...page.Contents.map((o) => o.Key));
  }
  assert.deepEqual(new Set(found), new Set(AWKWARD.map((k) => `k/${k}`)));
  await send(CopyObjectCommand, { Key: "copy", CopySource: `${Bucket}/k/plus%2B` });
  assert.equal((await body("copy")).toString(), "plus+");
  const gone = await send(DeleteObjectsCommand, { Delete: { Objects: found.map((Key) => ({ Key })) } });
  assert.equal(gone.Deleted.length, AWKWARD.length);
  assert.equal((await send(ListObjectsV2Command, { Prefix: "k/" })).KeyCount, 0);
}

async function multipart() {
  const data = bytes(17 * MIB + 3);
  const upload = new Upload({
    client, partSize: 5 * MIB, queueSize: 3,
    params: { Bucket, Key: "multipart", Body: Readable.from([data.subarray(0, 6 * MIB), data.subarray(6 * MIB)]) },
  });
  await upload.done();
  assert.deepEqual(await body("multipart"), data);
  const made = await send(CreateMultipartUploadCommand, { Key: "aborted" });
  const ids = { Key: "aborted", UploadId: made.UploadId };
  const part = await send(UploadPartCommand, { ...ids, PartNumber: 1, Body: "x" });
  assert.ok(part.ETag);
  assert.equal((await send(ListPartsCommand, ids)).Parts.length, 1);
  await send(AbortMultipartUploadCommand, ids);
  await assert.rejects(send(ListPartsCommand, ids), { name: "NoSuchUpload" });
}

async function presigned() {
  const put = await getSignedUrl(client, new PutObjectCommand({ Bucket, Key: "presigned +" }));
  const sent = await fetch(put, { method: "PUT", body: "hello" });
  assert.equal(sent.status, 200, await sent.text());
  const get = await getSignedUrl(client, new GetObjectCommand({ Bucket, Key: "presigned +" }));
  assert.equal(await (await fetch(get)).text(), "hello");
}

async function errors() {
  await assert.rejects(send(GetObjectCommand, { Key: "none" }), { name: "NoSuchKey" });
  await assert.rejects(send(HeadObjectCommand, { Key: "none" }), { name: "NotFound" });
  await assert.rejects(send(PutObjectCommand, { Key: "copy", Body: "x", IfNoneMatch: "*" }),
    { name: "PreconditionFailed" });
  await send(DeleteObjectCommand, { Key: "none" });
}

for (const check of [putAndGet, streams, keys, multipart, presigned, errors]) {
  await check();
  console.log(`ok ${check.name}`);
}
console.log("all checks passed");
